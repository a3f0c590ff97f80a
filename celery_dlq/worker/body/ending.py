"""How the run of a body ended: remembered in the thread that ran it, and sent on to the worker's parent."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from enum import Enum
from typing import Any

from billiard.common import terminate_handler_fired
from billiard.einfo import ExceptionInfo
from celery.app.task import Context
from celery.app.trace import TraceInfo, trace_ok_t
from celery.exceptions import WorkerShutdown, WorkerTerminate
from celery.states import FAILURE
from celery.utils.log import get_logger
from celery.utils.serialization import get_pickleable_exception

from celery_dlq.classify import Decision, subject
from celery_dlq.errors import TaskAborted
from celery_dlq.headers import redrive_of
from celery_dlq.letter import Attempt, Explanation, Failure, Parking
from celery_dlq.redact import safe_message
from celery_dlq.states import Reason, Verdict
from celery_dlq.worker.body.failure import (
    app_frames,
    bounded_traceback,
    read_attempts,
    shed_frames,
    traceback_text,
    type_name,
    unwrap,
)

logger = get_logger(__name__)

#: ``(task id, args, kwargs, request) -> trace_ok_t``
Tracer = Callable[..., Any]


class Ended(Enum):
    """Endings that are no death."""

    FINISHED = "finished"
    #: Another message is on its way, for an error.
    RETRIED = "retried"
    #: Another message is on its way, and there was no error: the body looks again later.
    POSTPONED = "postponed"


@dataclass(frozen=True)
class Died:
    """The end of a message, and the exception it died of."""

    failure: Failure
    exc: BaseException


@dataclass(frozen=True)
class Refused:
    """Why ``retry()`` let ``exc`` out instead of another message."""

    exc: BaseException
    reason: Reason
    why: str = ""


@dataclass(frozen=True)
class Waiting:
    """A retry that is to be parked by the worker's parent."""

    parking: Parking
    #: Sends it through the broker instead.
    send: Callable[[], object]


class _Here(threading.local):
    #: How the body ended that runs, or ran last, in this thread; None while it has not.
    ending: Ended | Died | None = None
    #: The rule that decided for the last retry.
    rule: str = ""
    #: The retry that waits for the parent.
    waiting: Waiting | None = None

    def park(self, waiting: Waiting) -> None:
        """Let ``waiting`` ride to the parent. Of several retries of one run only the last one can."""
        self.send_waiting()
        self.waiting = waiting

    def send_waiting(self) -> None:
        """Send what waits through the broker after all."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            waiting.send()


#: Where a body's end is noted until :func:`guarded` sends it on.
here = _Here()


def attempt_of(
    request: Context, exc: BaseException, explanation: Explanation, delay_s: float | None = None
) -> Attempt:
    """The run of ``request`` that ``exc`` ended.

    :param delay_s: seconds until the next attempt; None when there is none.
    """
    return Attempt(
        number=(request.retries or 0) + 1,
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


def died(
    request: Context, exc: BaseException, decision: Decision, reason: Reason, why: str = ""
) -> Died:
    """The end of ``request`` by ``exc``, with what only this process knows. ``why`` is added to the
    decision's evidence."""
    explanation = _with_evidence(decision.explanation(), why)
    last = attempt_of(request, exc, explanation)
    failure = Failure(
        reason=reason,
        explanation=explanation,
        exception_type=last.exception_type,
        message=last.message,
        traceback="",
        # What was wrapped may never have been raised.
        frames=app_frames(subject(exc)) or app_frames(exc),
        failed_at=last.failed_at,
        attempts=(*read_attempts(request.headers), last),
        pid=last.pid,
    )
    return Died(failure, exc)


def aborted(exc: BaseException) -> TaskAborted:
    """What stands in for an exception that would take the worker along."""
    return TaskAborted(f"{type_name(type(exc))}: {safe_message(exc)}")


#: Of libraries that need not be there: the end of a greenlet, and the time limit of the gevent pool.
_ENDS_OF_GREENLETS = frozenset({"greenlet.GreenletExit", "gevent.timeout.Timeout"})


def is_shutdown(exc: BaseException) -> bool:
    """Whether ``exc`` is not the task's own: somebody ends its process, its greenlet, or (in the solo
    pool) its worker."""
    return (
        terminate_handler_fired()
        or isinstance(exc, (WorkerShutdown, WorkerTerminate))
        or not _ENDS_OF_GREENLETS.isdisjoint(map(type_name, type(exc).__mro__))
    )


def guarded(tracer: Tracer) -> Tracer:
    """``tracer`` (Celery's, of one task), with the body's end told to the worker's parent.

    Celery tells the parent something else where it fails itself: the result backend's error when that is
    down. From some errors it raises instead; then a pool without processes loses the message, and the
    solo pool its worker.
    """

    def trace(uuid: str, args: Any, kwargs: Any, request: dict[str, Any] | None = None) -> Any:
        here.ending = here.waiting = None
        try:
            result = tracer(uuid, args, kwargs, request)
        except BaseException as exc:
            if is_shutdown(exc):
                raise
            result = _failed_outside(exc)
        if result.info is not None:
            _tell(result.retval, request or {})
        _send_left()
        return result

    return trace


def _send_left() -> None:
    """A retry that the body asked for, and that nothing takes to the parent: the body went on to
    another end."""
    try:
        here.send_waiting()
    except Exception:
        logger.exception("celery_dlq could not send a retry that its task went on after")


def _failed_outside(exc: BaseException) -> trace_ok_t:
    logger.error("Celery failed to end a task", exc_info=exc)
    # The parent would take the others for its own, and exit.
    harmless = isinstance(exc, Exception) and not isinstance(exc, MemoryError)
    safe = get_pickleable_exception(exc) if harmless else aborted(exc)
    einfo = ExceptionInfo((type(safe), safe, exc.__traceback__), internal=True)
    return trace_ok_t(einfo, TraceInfo(FAILURE, exc), 0.0, None)


def _tell(einfo: Any, request: dict[str, Any]) -> None:
    """Let the ending travel on ``einfo``, the one object that reaches the parent in every case."""
    ending, here.ending = here.ending, None
    try:
        shed_frames(einfo)
        exc = unwrap(einfo)
        if ending is Ended.FINISHED:
            ending = _unstored(Context(request), exc)
        if isinstance(ending, Died):
            einfo.dlq_failure = _told(ending, einfo, exc)
        einfo.dlq_retried = ending in (Ended.RETRIED, Ended.POSTPONED)
        einfo.dlq_for_error = ending is Ended.RETRIED
        if einfo.dlq_retried:
            einfo.dlq_rule = here.rule
        if einfo.dlq_retried and here.waiting is not None:
            einfo.dlq_parking, here.waiting = here.waiting.parking, None
    except Exception:
        # The task's own end must reach Celery whatever happens here.
        logger.exception("celery_dlq could not tell how a task ended")


def _unstored(request: Context, exc: BaseException) -> Died:
    decision = Decision(Verdict.TERMINAL, rule="task.unstored", evidence="the body ran to its end")
    return died(request, exc, decision, Reason.UNSTORED)


def _told(ending: Died, einfo: Any, exc: BaseException) -> Failure:
    if exc is ending.exc:
        # Celery has formatted it already.
        return replace(ending.failure, traceback=bounded_traceback(einfo.traceback))
    failure = replace(ending.failure, traceback=traceback_text(ending.exc))
    if not einfo.internal:
        return failure
    why = f"its result could not be stored: {type_name(type(exc))}: {safe_message(exc)}"
    return replace(failure, explanation=_with_evidence(failure.explanation, why))


def _with_evidence(explanation: Explanation, more: str) -> Explanation:
    evidence = "; ".join(filter(None, (explanation.evidence, more)))
    return replace(explanation, evidence=evidence)
