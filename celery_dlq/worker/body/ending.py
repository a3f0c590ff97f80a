"""How the run of a body ends, and how the worker's parent learns of it.

The end is left where the tracer finds it (:func:`here`), by :mod:`celery_dlq.worker.body.answer` or
when the body returns. When Celery's tracer is done, the end is reported: it travels as one attribute of the
run's ``ExceptionInfo``, the only object that reaches the parent in every case. Both processes run the same
release, so the value needs no other form.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from types import TracebackType
from typing import Any

import celery.app.trace
from billiard.einfo import ExceptionInfo
from celery.app.task import Context
from celery.app.trace import TraceInfo, trace_ok_t
from celery.exceptions import Ignore, Reject, Retry
from celery.states import FAILURE
from celery.utils.log import get_logger
from celery.utils.serialization import get_pickleable_exception

from celery_dlq.classify import Decision, is_a, subject, tells_its_class
from celery_dlq.model.headers import attempt_number, redrive_of
from celery_dlq.model.letter import Attempt, Explanation, Failure, Parking
from celery_dlq.model.states import Reason, Verdict
from celery_dlq.recorder import returned
from celery_dlq.redact import safe_message
from celery_dlq.worker.body.log import RunLog
from celery_dlq.worker.failure import (
    aborted,
    bounded_traceback,
    failure_after,
    is_shutdown,
    read_attempts,
    shed_frames,
    traceback_text,
    type_name,
    unwrap,
)
from celery_dlq.worker.grouping import grounds_of

logger: logging.Logger = get_logger(__name__)

#: ``(task id, args, kwargs, request) -> trace_ok_t``
Tracer = Callable[..., Any]


@dataclass(frozen=True)
class RunEnd:
    """The end of a run that did not succeed."""

    #: The failure that its message died of; None if it did not die.
    failure: Failure | None = None
    #: Whether another message takes the place of this one.
    retried: bool = False
    #: Whether it was retried for an error. A body may also ask to run again later without one.
    for_error: bool = False
    #: The rule that decided for the retry.
    rule: str = ""
    #: The retry, if the parent has to park it in the store.
    parking: Parking | None = None
    #: Why a retry was refused before the body began; the parent judges the error that followed.
    reason: Reason | None = None


#: The end of a run that reported none: its process died, or Celery failed before the body.
UNREPORTED = RunEnd()


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
    instead: BaseException | None = None


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


class Here:
    """The end of a run, until it is reported."""

    #: The value of :data:`_forks` when it began.
    forks: int
    #: How the body ended; None until it has ended.
    ending: Ending | None = None
    #: The retry that waits for the parent.
    waiting: Waiting | None = None
    #: The retry that the body has asked for and nothing has sent yet.
    unsent: Retry | None = None
    #: What the run has logged; None if it has logged nothing.
    log: RunLog | None = None
    #: The exception by which a retry was refused before the body began, and why.
    refused: tuple[BaseException, Reason] | None = None


#: How many forks lead from the program's first process to this one. Asking for the process's id would cost
#: each task two system calls.
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)

# Not of the thread: a pool that awaits bodies runs them in others, with copies of the tracer's context.
_here: ContextVar[Here] = ContextVar("celery_dlq.here")


def begin() -> Here:
    """Called when a run begins in this context."""
    _here.set(found := Here())
    found.forks = _forks
    return found


def last() -> Here | None:
    """The end of the run in this context, or of the last one; None if there was none."""
    return _here.get(None)


def here() -> Here:
    """The end of the run in this context, or of the last one."""
    return _here.get(None) or begin()


def leave_fork(exc: BaseException | None = None) -> None:
    """Called when the body has ended, by ``exc`` or because it has returned. If the body has forked this
    process, the process ends here, too, with the exit code that ``multiprocessing`` would give it.

    A run ends in the process that began it. Celery does not know that this is another one: it would store
    the end of the body here as the task's, acknowledge the message and, on prefork, take the next task from
    the pipe of the pool.
    """
    if here().forks == _forks:
        return
    code: Any = 1
    try:
        code = (exc.code or 0) if is_a(exc, SystemExit) else int(exc is not None)
        if exc is not None and code:
            logger.error("A process that a task has forked failed:\n%s", traceback_text(exc))
        send_left()
    finally:
        os._exit(code & 0xFF if isinstance(code, int) else 1)


def awaits_bodies() -> bool:
    """Whether a pool for coroutines has put its own tracer in the place of Celery's, which awaits nothing.
    celery-aio-pool and celery-pool-asyncio do so. Celery has no such pool (celery/celery#10634, open)."""
    return bool(celery.app.trace.build_tracer.__module__ != celery.app.trace.__name__)


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
        log=_log_of_this_run(),
    )


def _log_of_this_run() -> str:
    log = here().log
    try:
        return "" if log is None else log.text()
    except Exception:
        logger.exception("celery_dlq could not read what a task has logged")
        return ""


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


def reporting(tracer: Tracer) -> Tracer:
    """``tracer``, Celery's for one task, extended to report the end of the run.

    If Celery itself fails, its result does not tell how the body ended. If the result backend is down, the
    result holds the backend's error. Celery raises some errors instead; a pool without processes would then
    lose the message, and the solo pool would lose its worker.
    """

    def trace(uuid: str, args: Any, kwargs: Any, request: dict[str, Any] | None = None) -> Any:
        begin()
        returned.begin()
        try:
            result = tracer(uuid, args, kwargs, request)
        except BaseException as exc:
            leave_fork(exc)
            if is_shutdown(exc):
                raise
            result = trace_ok_t(failed_outside(exc), TraceInfo(FAILURE, exc), 0.0, None)
        leave_fork()
        if result.info is None:
            returned.note(uuid)
        else:
            report_end(result.retval, request or {})
        if here().waiting is not None:
            send_left()
        return result

    return trace


def report_end(einfo: Any, request: dict[str, Any]) -> None:
    """Report the end of this context's run to the parent, on ``einfo``."""
    ending = here().ending
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


def report(einfo: Any, end: RunEnd) -> None:
    """Let ``end`` travel to the parent on ``einfo``."""
    einfo.dlq_end = end


def reported(einfo: Any) -> RunEnd:
    """The end that ``einfo`` carries."""
    end: RunEnd = vars(einfo).get("dlq_end", UNREPORTED)
    return end


def _run_end(
    ending: Ending | None, einfo: Any, exc: BaseException, request: dict[str, Any]
) -> RunEnd:
    if ending is None:
        raised, reason = here().refused or (None, None)
        return RunEnd(reason=reason) if raised is exc else UNREPORTED
    if ending is FINISHED:
        ending = ending_of(_unstored(exc), Context(request))
    end = ending.end
    if end.failure is not None and ending.exc is not None:
        return replace(end, failure=_with_traceback(end.failure, ending.exc, einfo, exc))
    waiting = here().waiting
    if end.retried and waiting is not None:
        here().waiting = None
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
    if not einfo.internal or is_a(exc, (Ignore, Reject)):  # no result is stored of these
        return failure
    why = f"its result could not be stored: {type_name(type(exc))}: {safe_message(exc)}"
    return replace(failure, explanation=with_evidence(failure.explanation, why))


def send_left() -> None:
    """Send a retry that was not reported, because the body went on after it and ended in another way."""
    own = here()
    waiting, own.waiting = own.waiting, None
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
