"""The letter of a message, for each way in which it ends. Nothing is written or unpickled here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, TypeVar

from billiard.exceptions import WorkerLostError
from celery.exceptions import Reject, TimeLimitExceeded
from celery.utils.log import get_logger

from celery_dlq.base.process import pid_of, pid_of_run
from celery_dlq.base.redact import safe_message, safe_repr, safe_text
from celery_dlq.classify import Decision, is_a, subject
from celery_dlq.errors import CircuitOpen
from celery_dlq.model.fingerprint import Grounds
from celery_dlq.model.headers import CIRCUIT_HEADER, FREE_HEADER, redrive_of
from celery_dlq.model.letter import Attempt, DeadLetter, Envelope, Explanation, Failure, Parking
from celery_dlq.model.route import routed
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.model.worker import Circuit, Delivery
from celery_dlq.worker.body.ending import RunEnd
from celery_dlq.worker.body.parking import new_parking
from celery_dlq.worker.end.fate import Fate, is_internal
from celery_dlq.worker.end.handover import RULE
from celery_dlq.worker.failure import (
    bounded_traceback,
    failure_after,
    new_attempt,
    read_attempts,
    traceback_text,
    type_name,
)
from celery_dlq.worker.grouping import grounds_of
from celery_dlq.worker.message import Contents, envelope, letter_id, name_of, sendable_envelope
from celery_dlq.worker.secrecy import sealed
from celery_dlq.worker.wiring import Wiring

logger: logging.Logger = get_logger(__name__)

T = TypeVar("T")

#: The verdict on a run that a shutdown cut off, and on a message that the pool did not take.
CANCELLED = Decision(
    Verdict.TRANSIENT, rule="task.cancelled", evidence="a shutdown of the worker cut it off"
)
NOT_TAKEN = Decision(Verdict.TERMINAL, rule=RULE, evidence="the task did not run")


def safely(message: Any, make: Callable[[], T | None]) -> T | None:
    """What ``make`` returns; None if it fails. Then ``message`` is in the log."""
    try:
        return make()
    except Exception:
        # An exception from here would keep Celery from storing the result and acknowledging.
        body, headers = getattr(message, "body", message), getattr(message, "headers", None)
        logger.critical(
            "celery_dlq could not make a dead letter; its message: %s",
            sealed(f"body={safe_repr(body)} headers={safe_repr(headers)}"), exc_info=True,
        )  # fmt: skip
        return None


def letter_of_run(
    request: Any, exc: BaseException, fate: Reason | Fate, traceback: str, end: RunEnd
) -> DeadLetter | None:
    """The letter of a run that ``exc`` ended; None if its message is settled.

    :param fate: what Celery does with the message.
    """
    if end.retried:
        # This also holds if the result backend is down, and exc is its error instead of the retry.
        return None if end.parking is None else parked_letter(request, end.parking, request.dlq.app)
    if isinstance(fate, Fate) or is_internal(request):
        return None
    failure = end.failure or failure_of(request, exc, traceback, end.reason or fate)
    return snapshot(request, failure, request.dlq.app)


def letter_of_end(
    request: Any, exc: Exception, reason: Reason, decision: Decision | None = None
) -> DeadLetter | None:
    """The letter of a message that ``exc`` ended outside a run, or in one that reported nothing; None if its
    task is one of Celery's own, unless the pool did not take it."""
    if is_internal(request) and reason is not Reason.MALFORMED:
        return None
    text = traceback_text(exc) if reason is Reason.MALFORMED else ""
    return snapshot(request, failure_of(request, exc, text, reason, decision), request.dlq.app)


def letter_of_poison(
    request: Any, exc: BaseException, known: Sequence[Delivery],
    *, seen: bool, reported: Failure | None = None,
) -> DeadLetter:  # fmt: skip
    """The letter of a message that was delivered too often without an end.

    :param known: its deliveries that did not end.
    :param seen: whether the last of these ended just now, with ``exc``. If not, the message was not run.
    :param reported: the failure as the process that ran the task reported it.
    """
    reason = Reason.TIMEOUT if is_a(exc, TimeLimitExceeded) else Reason.POISON
    reason = Reason.REJECTED if is_a(exc, Reject) else reason
    failure = reported or failure_of(request, exc, "", reason)
    return snapshot(request, poisoned(failure, known, seen=seen), request.dlq.app)


def parked_letter(request: Any, parking: Parking, wiring: Wiring) -> DeadLetter:
    """The letter of a retry of ``request`` (a worker's Request) that waits in the store."""
    return snapshot(request, parking.failure, wiring).with_(
        state=State.PARKED,
        parking=parking.id,
        due_at=parking.due_at,
        envelope=parking.envelope,
    )


def letter_of_open_circuit(
    request: Any, circuit: Circuit, due_at: datetime, wiring: Wiring
) -> DeadLetter:
    """The letter of ``request`` (a worker's Request), which is not run while ``circuit`` is open.

    The message is kept as it came, except for its attempts: they begin again, because the attempts so far
    may have been used up by the outage that opened the circuit. Its retry window continues.
    """
    retries = request.request_dict.get("retries")
    free = {FREE_HEADER: retries} if type(retries) is int and retries > 0 else {}
    why = f"the circuit of {circuit.name} is open"
    failure = Failure(
        reason=Reason.PARKED,
        explanation=Explanation(verdict=Verdict.TRANSIENT, rule="breaker.open", evidence=why),
        exception_type=type_name(CircuitOpen),
        message=why,
        traceback="",
        grounds=Grounds(),
        failed_at=datetime.now(timezone.utc),
        attempts=read_attempts(request.request_dict),
        pid=None,
    )
    parking = Parking(
        id=new_parking(wiring.hold.place, name_of(request)[0]),
        failure=failure,
        envelope=sendable_envelope(
            request.message, request.app, {CIRCUIT_HEADER: circuit.key, **free}
        ),
        due_at=due_at,
    )
    # There may be no attempt that says it.
    redrive = redrive_of(request.message.headers)
    return parked_letter(request, parking, wiring).with_(redrive_count=redrive)


def snapshot(request: Any, failure: Failure, wiring: Wiring) -> DeadLetter:
    """The letter of ``request`` (a worker's Request), which died of ``failure``."""
    _args, _kwargs, embed = request._payload
    return dead_letter(
        letter_id(request.message, request.id),
        envelope(request.message, request.app),
        Contents(request.request_dict, request.args, request.kwargs, embed),
        failure,
        wiring,
        worker=request.hostname or "",
        tags=tuple(getattr(request.task, "dlq_tags", ())),
    )


def dead_letter(
    task_id: str,
    sent: Envelope,
    contents: Contents,
    failure: Failure,
    wiring: Wiring,
    *,
    worker: str = "",
    tags: tuple[str, ...] = (),
) -> DeadLetter:
    """The letter of a message that died of ``failure``.

    :param sent: the message, as it can be sent again.
    :param worker: the name of this worker, for a message without attempts: a breaker parked it.
    """
    fields, redactor, attempts = contents.fields, wiring.redactor, failure.attempts
    letter = DeadLetter(
        task_id=task_id,
        task=contents.task,
        reason=failure.reason,
        explanation=failure.explanation,
        exception_type=failure.exception_type,
        message=failure.message,
        traceback=failure.traceback,
        log=failure.log,
        grounds=failure.grounds,
        args=redactor.display(redactor.named(contents.task, contents.args)),
        kwargs=redactor.display(contents.kwargs),
        attempts=attempts,
        first_failed_at=attempts[0].failed_at if attempts else failure.failed_at,
        last_failed_at=failure.failed_at,
        worker=attempts[-1].worker if attempts else worker,
        pid=failure.pid,
        release=wiring.settings.release,
        message_release=wiring.settings.release,
        root_id=_text_or_none(fields.get("root_id")),
        parent_id=_text_or_none(fields.get("parent_id")),
        group_id=_text_or_none(fields.get("group") or fields.get("taskset")),
        correlation_id=_text_or_none(sent.properties.get("correlation_id")),
        canvas=contents.canvas,
        tags=tags,
        subject=wiring.subject_of(contents.args, contents.kwargs),
        namespace=wiring.settings.own_namespace,
        envelope=sent,
    )
    return routed(wiring.grouping.grouped(letter), wiring.settings.routes)


def _text_or_none(value: object) -> str | None:
    return safe_text(value) if isinstance(value, str) else None


def failure_of(
    request: Any,
    exc: BaseException,
    traceback: str,
    reason: Reason,
    decision: Decision | None = None,
) -> Failure:
    """The failure of a run that reported none: its process died, or the error came from outside the body.

    :param decision: the judgement, if it does not depend on ``exc``.
    """
    decision = decision or request.dlq.app.classifier.decide(exc)
    if reason is Reason.TERMINAL and decision.verdict is Verdict.TRANSIENT:
        # It is too late for a retry, so a transient failure counts as exhausted.
        reason = Reason.EXHAUSTED
    last = new_attempt(
        request.request_dict, request.message.headers, _raised_type(subject(exc)),
        safe_message(subject(exc)), decision.explanation(),
        worker=request.hostname or "", pid=pid_of_run(request.worker_pid),
    )  # fmt: skip
    return failure_after(
        (*read_attempts(request.request_dict), last),
        reason,
        traceback=bounded_traceback(traceback),
        grounds=grounds_of(exc, decision),
    )


def poisoned(failure: Failure, known: Sequence[Delivery], *, seen: bool) -> Failure:
    """``failure``, with the deliveries of its message that did not end as attempts.

    :param seen: whether the failure is the end of the last of ``known``; otherwise the message was
        not run this time.
    """
    *before, now = failure.attempts
    died = tuple(_attempt_of(item, now) for item in (known[:-1] if seen else known))
    attempts = (*before, *died, *([now] if seen or not died else []))
    evidence = "; ".join(filter(None, (failure.explanation.evidence, *map(_account, known))))
    return replace(
        failure,
        attempts=attempts,
        explanation=replace(failure.explanation, evidence=evidence),
        pid=attempts[-1].pid,
    )


def _attempt_of(item: Delivery, now: Attempt) -> Attempt:
    return replace(
        now,
        number=item.attempt,
        redrive=item.redrive,
        # The time of the death is unknown, but the time of the start is not.
        failed_at=item.started_at,
        exception_type=type_name(WorkerLostError),
        message=item.death or "the worker died while this ran",
        worker=item.worker,
        pid=pid_of(item.process),
    )


def _account(item: Delivery) -> str:
    where = f"{item.worker} alone" if item.alone else item.worker
    died = item.death or "its worker died"
    return f"delivery {item.number} started {item.started_at:%Y-%m-%d %H:%M:%S} on {where}: {died}"


def _raised_type(exc: BaseException) -> str:
    # Celery replaces an exception that cannot be pickled with this wrapper.
    module, name = getattr(exc, "exc_module", None), getattr(exc, "exc_cls_name", None)
    if isinstance(module, str) and isinstance(name, str):
        return name if module == "builtins" else f"{module}.{name}"
    return type_name(type(exc))
