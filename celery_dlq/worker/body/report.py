"""Reports the end of a run to the worker's parent.

When Celery's tracer is done, the end travels as one attribute of the run's ``ExceptionInfo``, the only object
that reaches the parent in every case. Both processes run the same release, so the value needs no other form.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any

import celery.app.trace
from billiard.einfo import ExceptionInfo
from celery.app.task import Context
from celery.app.trace import TraceInfo, trace_ok_t
from celery.exceptions import Ignore, Reject
from celery.states import FAILURE
from celery.utils.log import get_logger
from celery.utils.serialization import get_pickleable_exception

from celery_dlq.base.redact import safe_message
from celery_dlq.classify import Decision, is_a, tells_its_class
from celery_dlq.model.letter import Failure
from celery_dlq.model.states import Reason, Verdict
from celery_dlq.recorder import bodies
from celery_dlq.worker.body.ending import (
    FINISHED,
    UNREPORTED,
    RunEnd,
    begin_run,
    current_run,
    died,
    leave_fork,
    send_left,
    with_evidence,
)
from celery_dlq.worker.failure import (
    aborted,
    bounded_traceback,
    is_shutdown,
    logged,
    shed_frames,
    traceback_text,
    type_name,
    unwrap,
)
from celery_dlq.worker.secrecy import traceback_in_log

logger: logging.Logger = get_logger(__name__)

#: ``(task id, args, kwargs, request) -> trace_ok_t``
Tracer = Callable[..., Any]

#: The verdict on a body that returned, and whose result Celery could not store.
_UNSTORED = Decision(Verdict.TERMINAL, rule="task.unstored", evidence="the body ran to its end")


def awaits_bodies() -> bool:
    """Whether a pool for coroutines has put its own tracer in the place of Celery's, which awaits nothing.
    celery-aio-pool and celery-pool-asyncio do so. Celery has no such pool (celery/celery#10634, open)."""
    return bool(celery.app.trace.build_tracer.__module__ != celery.app.trace.__name__)


def reporting(tracer: Tracer) -> Tracer:
    """``tracer``, Celery's for one task, extended to report the end of the run.

    If Celery itself fails, its result does not tell how the body ended. If the result backend is down, the
    result holds the backend's error. Celery raises some errors instead; a pool without processes would then
    lose the message, and the solo pool would lose its worker.
    """

    def trace(uuid: str, args: Any, kwargs: Any, request: dict[str, Any] | None = None) -> Any:
        begin_run()
        bodies.begin()
        try:
            result = tracer(uuid, args, kwargs, request)
        except BaseException as exc:
            leave_fork(exc)
            if is_shutdown(exc):
                raise
            result = trace_ok_t(failed_outside(exc), TraceInfo(FAILURE, exc), 0.0, None)
        leave_fork()
        if result.info is None:
            bodies.note(uuid)
        else:
            report_end(result.retval, request or {})
        if current_run().waiting is not None:
            send_left()
        return result

    return trace


def report_end(einfo: Any, request: dict[str, Any]) -> None:
    """Report the end of this context's run to the parent, on ``einfo``."""
    ending = current_run().ending
    exc = unwrap(einfo)
    if not tells_its_class(exc):
        # Celery calls isinstance(): a message whose exception poses as a SystemExit would never be settled.
        einfo.exception = aborted(exc)
    # The task's own end must reach Celery whatever happens here.
    with logged(logger, "celery_dlq could not report how a task ended"):
        shed_frames(einfo)
        report(einfo, _run_end(ending, einfo, exc, request))


def report(einfo: Any, end: RunEnd) -> None:
    """Let ``end`` travel to the parent on ``einfo``."""
    einfo.dlq_end = end


def reported(einfo: Any) -> RunEnd:
    """The end that ``einfo`` carries."""
    end: RunEnd = vars(einfo).get("dlq_end", UNREPORTED)
    return end


def _run_end(end: RunEnd | None, einfo: Any, exc: BaseException, request: dict[str, Any]) -> RunEnd:
    if end is None:
        raised, reason = current_run().refused or (None, None)
        return RunEnd(reason=reason) if raised is exc else UNREPORTED
    if end is FINISHED:
        end = died(Context(request), exc, _UNSTORED, Reason.UNSTORED)
    sent, waiting = replace(end, exc=None, instead=None), current_run().waiting
    if end.failure is not None and end.exc is not None:
        return replace(sent, failure=_with_traceback(end.failure, end.exc, einfo, exc))
    if end.retried and waiting is not None:
        current_run().waiting = None
        return replace(sent, parking=waiting.parking)
    return sent


def _with_traceback(
    failure: Failure, died_of: BaseException, einfo: Any, exc: BaseException
) -> Failure:
    if exc is died_of:
        # Celery has formatted it already.
        return replace(failure, traceback=bounded_traceback(einfo.traceback))
    failure = replace(failure, traceback=traceback_text(died_of))
    if not einfo.internal or is_a(exc, (Ignore, Reject)):  # no result is stored of these
        return failure
    why = f"its result could not be stored: {type_name(type(exc))}: {safe_message(exc)}"
    return replace(failure, explanation=with_evidence(failure.explanation, why))


def failed_outside(exc: BaseException) -> ExceptionInfo:
    """The end of a run by an error of Celery's own, before or after the body."""
    logger.error("Celery failed before or after the body of a task:\n%s", traceback_in_log(exc))
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
