"""How the run of a body ended, kept in the thread that ran it until :mod:`celery_dlq.worker.body.tracing`
reports it to the worker's parent."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from celery.app.task import Context
from celery.exceptions import Ignore, Retry

from celery_dlq.classify import Decision, subject
from celery_dlq.model.headers import attempt_number, redrive_of
from celery_dlq.model.letter import Attempt, Explanation, Failure, Parking
from celery_dlq.model.states import Reason
from celery_dlq.redact import safe_message
from celery_dlq.worker.failure import failure_after, read_attempts, type_name
from celery_dlq.worker.grounds import grounds_of
from celery_dlq.worker.run_end import RunEnd


@dataclass(frozen=True)
class Died:
    """The verdict on a run after which its message does not run again."""

    #: The exception that it died of.
    exc: BaseException
    decision: Decision
    reason: Reason
    #: Added to the decision's evidence.
    why: str = ""
    #: Goes to Celery in place of the exception that the body raised.
    instead: Exception | None = None


@dataclass(frozen=True)
class Retried:
    """The verdict on a run whose message is followed by another one."""

    #: The rule that decided.
    rule: str
    #: Whether it is for an error. A body may also ask to run again later without one.
    for_error: bool = True
    #: Goes to Celery in place of the exception that the body raised.
    instead: Ignore | Retry | None = None


@dataclass(frozen=True)
class Ending:
    """The end of a run, to be reported."""

    end: RunEnd
    #: The exception that the message died of.
    exc: BaseException | None = None


class Replaced(Ignore):  # type: ignore[misc]
    """The end of a body that has put another message in the place of its own, by ``replace()``.

    :param continues: whether that message is one of the same task, and reports for the same redrive.
    """

    def __init__(self, continues: bool) -> None:
        super().__init__(continues)
        self.continues = continues

    def __str__(self) -> str:
        return "the task replaced itself"


#: The end of a body that returned. It is reported only if Celery fails afterwards.
FINISHED = Ending(RunEnd())


@dataclass(frozen=True)
class Waiting:
    """A retry that the worker's parent is to park."""

    parking: Parking
    #: Sends it through the broker instead.
    send: Callable[[], object]


class _Here(threading.local):
    #: How the body that runs or ran last in this thread ended; None until it has ended.
    ending: Ending | None = None
    #: The retry that waits for the parent.
    waiting: Waiting | None = None


#: The end of this thread's run, until it is reported.
here = _Here()


def ending_of(outcome: Died | Retried, request: Context) -> Ending:
    """The end that ``outcome`` gives the run of ``request``, with everything that only this process knows."""
    if isinstance(outcome, Retried):
        return Ending(RunEnd(retried=True, for_error=outcome.for_error, rule=outcome.rule))
    return Ending(RunEnd(failure=_failure(outcome, request)), outcome.exc)


def _failure(died: Died, request: Context) -> Failure:
    explanation = with_evidence(died.decision.explanation(), died.why)
    last = attempt_of(request, died.exc, explanation)
    return failure_after(
        (*read_attempts(request.headers), last),
        died.reason,
        # Celery has not formatted the traceback yet; it is added when the end is reported.
        traceback="",
        grounds=grounds_of(died.exc, died.decision),
    )


def attempt_of(
    request: Context, exc: BaseException, explanation: Explanation, delay_s: float | None = None
) -> Attempt:
    """The run of ``request`` that ``exc`` ended.

    :param delay_s: seconds until the next attempt; None if there is no next one.
    """
    return Attempt(
        number=attempt_number(vars(request)),
        redrive=redrive_of(request.headers),
        failed_at=datetime.now(timezone.utc),
        exception_type=type_name(type(subject(exc))),
        message=safe_message(subject(exc)),
        verdict=explanation.verdict,
        rule=explanation.rule,
        evidence=explanation.evidence,
        path=explanation.path,
        delay_s=delay_s,
        worker=request.hostname or "",
        pid=os.getpid(),
    )


def with_evidence(explanation: Explanation, more: str) -> Explanation:
    """``explanation`` with ``more`` added to its evidence."""
    evidence = "; ".join(filter(None, (explanation.evidence, more)))
    return replace(explanation, evidence=evidence)
