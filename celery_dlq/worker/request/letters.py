"""The letter of a request, for each way in which it ends. Nothing is written here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.exceptions import InvalidTaskError

from celery_dlq.classify import Decision
from celery_dlq.errors import TaskCancelled
from celery_dlq.model.delivery import Delivery
from celery_dlq.model.letter import DeadLetter, Failure
from celery_dlq.model.states import Reason, Verdict
from celery_dlq.worker.failure import traceback_text, unwrap
from celery_dlq.worker.request.fate import fate_of, is_internal
from celery_dlq.worker.request.handover import RULE
from celery_dlq.worker.run_end import RunEnd
from celery_dlq.worker.writing.parked import parked_letter
from celery_dlq.worker.writing.snapshot import failure_of, poisoned, snapshot

_CANCELLED = Decision(
    Verdict.TRANSIENT, rule="task.cancelled", evidence="a shutdown of the worker cut it off"
)
_NOT_TAKEN = Decision(Verdict.TERMINAL, rule=RULE, evidence="the task did not run")


def letter_of_run(request: Any, einfo: ExceptionInfo, end: RunEnd) -> DeadLetter | None:
    """The letter of a run that did not succeed; None if its message goes on, or was dropped on purpose."""
    if end.retried:
        # This also holds if the result backend is down, and einfo has its error instead of the retry.
        return None if end.parking is None else parked_letter(request, end.parking, request.dlq.app)
    return letter_of(request, unwrap(einfo), str(einfo.traceback or ""), end.failure)


def letter_of(
    request: Any, exc: BaseException, traceback: str = "", reported: Failure | None = None
) -> DeadLetter | None:
    """The letter of a run that ``exc`` ended; None if its message goes on, or was dropped on purpose.

    :param reported: the failure as the process that ran the task reported it.
    """
    reason = fate_of(request, exc)
    if reason is None or is_internal(request):
        return None
    failure = reported or failure_of(request, exc, traceback, reason, request.dlq.app)
    return snapshot(request, failure, request.dlq.app)


def letter_of_unsent_retry(request: Any, exc: BaseException) -> DeadLetter | None:
    """The letter of a run whose process was lost, and whose retry could not be sent."""
    return _letter_of_cut_off(request, exc, Reason.POISON)


def letter_of_poison(
    request: Any, exc: BaseException, reason: Reason, known: Sequence[Delivery],
    *, seen: bool, reported: Failure | None = None,
) -> DeadLetter:  # fmt: skip
    """The letter of a message that was delivered too often without an end.

    :param known: its deliveries that did not end.
    :param seen: whether the last of these ended just now, with ``exc``. If not, the message was not run.
    :param reported: the failure as the process that ran the task reported it.
    """
    failure = reported or failure_of(request, exc, "", reason, request.dlq.app)
    return snapshot(request, poisoned(failure, known, seen=seen), request.dlq.app)


def letter_of_refused(request: Any, error: InvalidTaskError) -> DeadLetter:
    """The letter of a message that the pool cannot take."""
    text = traceback_text(error)
    failure = failure_of(request, error, text, Reason.MALFORMED, request.dlq.app, _NOT_TAKEN)
    return snapshot(request, failure, request.dlq.app)


def letter_of_cancelled(request: Any) -> DeadLetter | None:
    """The letter of a run that a shutdown of the worker cut off after its message was acknowledged."""
    return _letter_of_cut_off(request, TaskCancelled(), Reason.CANCELLED, _CANCELLED)


def _letter_of_cut_off(
    request: Any, exc: BaseException, reason: Reason, decision: Decision | None = None
) -> DeadLetter | None:
    if is_internal(request):
        return None
    failure = failure_of(request, exc, "", reason, request.dlq.app, decision)
    return snapshot(request, failure, request.dlq.app)
