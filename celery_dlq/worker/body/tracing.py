"""Around Celery's tracer: the end of each run that did not succeed is reported to the worker's parent."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.app.task import Context
from celery.app.trace import TraceInfo, trace_ok_t
from celery.states import FAILURE
from celery.utils.log import get_logger
from celery.utils.serialization import get_pickleable_exception

from celery_dlq.classify import Decision, is_a, tells_its_class
from celery_dlq.model.letter import Failure
from celery_dlq.model.states import Reason, Verdict
from celery_dlq.redact import safe_message
from celery_dlq.worker.body.aborting import aborted, is_shutdown
from celery_dlq.worker.body.ending import FINISHED, Died, Ending, ending_of, here, with_evidence
from celery_dlq.worker.failure import (
    bounded_traceback,
    shed_frames,
    traceback_text,
    type_name,
    unwrap,
)
from celery_dlq.worker.run_end import UNREPORTED, RunEnd, report

logger = get_logger(__name__)

#: ``(task id, args, kwargs, request) -> trace_ok_t``
Tracer = Callable[..., Any]


def reporting(tracer: Tracer) -> Tracer:
    """``tracer``, Celery's for one task, extended to report the end of the run.

    If Celery itself fails, its result does not tell how the body ended. If the result backend is down, the
    result holds the backend's error. Celery raises some errors instead; a pool without processes would then
    lose the message, and the solo pool would lose its worker.
    """

    def trace(uuid: str, args: Any, kwargs: Any, request: dict[str, Any] | None = None) -> Any:
        here.ending = here.waiting = None
        try:
            result = tracer(uuid, args, kwargs, request)
        except BaseException as exc:
            if is_shutdown(exc):
                raise
            result = trace_ok_t(failed_outside(exc), TraceInfo(FAILURE, exc), 0.0, None)
        if result.info is not None:
            report_end(result.retval, request or {})
        send_left()
        return result

    return trace


def report_end(einfo: Any, request: dict[str, Any]) -> None:
    """Report the end of this thread's run to the parent, on ``einfo``."""
    ending, here.ending = here.ending, None
    exc = unwrap(einfo)
    if not tells_its_class(exc):
        # Celery calls isinstance(): a message whose exception poses as a SystemExit would never be settled.
        einfo.exception = aborted(exc)
    try:
        shed_frames(einfo)
        report(einfo, _run_end(ending, einfo, exc, request))
    except Exception:
        # The task's own end must reach Celery whatever happens here.
        logger.exception("celery_dlq could not report how a task ended")


def _run_end(
    ending: Ending | None, einfo: Any, exc: BaseException, request: dict[str, Any]
) -> RunEnd:
    if ending is None:
        return UNREPORTED
    if ending is FINISHED:
        ending = ending_of(_unstored(exc), Context(request))
    end = ending.end
    if end.failure is not None and ending.exc is not None:
        return replace(end, failure=_with_traceback(end.failure, ending.exc, einfo, exc))
    if end.retried and here.waiting is not None:
        waiting, here.waiting = here.waiting, None
        return replace(end, parking=waiting.parking)
    return end


def _unstored(exc: BaseException) -> Died:
    decision = Decision(Verdict.TERMINAL, rule="task.unstored", evidence="the body ran to its end")
    return Died(exc, decision, Reason.UNSTORED)


def _with_traceback(
    failure: Failure, died_of: BaseException, einfo: Any, exc: BaseException
) -> Failure:
    if exc is died_of:
        # Celery has formatted it already.
        return replace(failure, traceback=bounded_traceback(einfo.traceback))
    failure = replace(failure, traceback=traceback_text(died_of))
    if not einfo.internal:
        return failure
    why = f"its result could not be stored: {type_name(type(exc))}: {safe_message(exc)}"
    return replace(failure, explanation=with_evidence(failure.explanation, why))


def send_left() -> None:
    """Send a retry that was not reported, because the body went on after it and ended in another way."""
    waiting, here.waiting = here.waiting, None
    try:
        if waiting is not None:
            waiting.send()
    except Exception:
        logger.exception("celery_dlq could not send a retry that its task went on after")


def failed_outside(exc: BaseException) -> ExceptionInfo:
    """The end of a run by an error of Celery's own, before or after the body."""
    logger.error("Celery failed before or after the body of a task:\n%s", traceback_text(exc))
    # The parent would mistake other exceptions for its own, and exit.
    if is_a(exc, Exception) and not is_a(exc, MemoryError) and tells_its_class(exc):
        # An exception in its chain may raise when it is formatted.
        with contextlib.suppress(Exception):
            return _as_einfo(get_pickleable_exception(exc), exc.__traceback__)
    return _as_einfo(aborted(exc), exc.__traceback__)


def _as_einfo(exc: Exception, traceback: TracebackType | None) -> ExceptionInfo:
    return ExceptionInfo((type(exc), exc, traceback), internal=True)


def einfo_of(exc: Exception) -> ExceptionInfo:
    """``exc`` as a pool reports it to a request, with its causes."""
    try:
        raise exc
    except type(exc):
        return ExceptionInfo()
