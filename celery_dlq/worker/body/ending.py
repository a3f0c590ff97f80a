"""How the run of a body ends.

The end is left where the tracer finds it (:func:`current_run`), by :mod:`celery_dlq.worker.body.answer` or
when the body returns. When Celery's tracer is done, :mod:`celery_dlq.worker.body.report` reports it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from celery.app.task import Context
from celery.exceptions import Ignore, Retry
from celery.utils.log import get_logger

from celery_dlq.base.redact import safe_message
from celery_dlq.classify import Decision, is_a, subject
from celery_dlq.model.letter import Attempt, Explanation, Failure, Parking
from celery_dlq.model.states import Reason
from celery_dlq.worker.body.log import RunLog
from celery_dlq.worker.failure import (
    failure_after,
    logged,
    new_attempt,
    read_attempts,
    type_name,
)
from celery_dlq.worker.grouping import grounds_of
from celery_dlq.worker.secrecy import traceback_in_log

logger: logging.Logger = get_logger(__name__)


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
    #: The exception that the message died of. It does not travel to the parent.
    exc: BaseException | None = None
    #: Goes to Celery in place of the exception that the body raised. It does not travel either.
    instead: BaseException | None = None


#: The end of a run that reported none: its process died, or Celery failed before the body.
UNREPORTED = RunEnd()


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
FINISHED = RunEnd()


@dataclass(frozen=True)
class Waiting:
    """A retry that the worker's parent is to park."""

    parking: Parking
    #: Sends it through the broker instead.
    send: Callable[[], object]


class RunState:
    """The end of a run, until it is reported."""

    #: The value of :data:`_forks` when it began.
    forks: int
    #: How the body ended; None until it has ended.
    ending: RunEnd | None = None
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
_here: ContextVar[RunState] = ContextVar("celery_dlq.here")


def begin_run() -> RunState:
    """Called when a run begins in this context."""
    _here.set(found := RunState())
    found.forks = _forks
    return found


def last_run() -> RunState | None:
    """The end of the run in this context, or of the last one; None if there was none."""
    return _here.get(None)


def current_run() -> RunState:
    """The end of the run in this context, or of the last one."""
    return _here.get(None) or begin_run()


def leave_fork(exc: BaseException | None = None) -> None:
    """Called when the body has ended, by ``exc`` or because it has returned. If the body has forked this
    process, the process ends here, too, with the exit code that ``multiprocessing`` would give it.

    A run ends in the process that began it. Celery does not know that this is another one: it would store
    the end of the body here as the task's, acknowledge the message and, on prefork, take the next task from
    the pipe of the pool.
    """
    if current_run().forks == _forks:
        return
    code: Any = 1
    try:
        code = (exc.code or 0) if is_a(exc, SystemExit) else int(exc is not None)
        if exc is not None and code:
            logger.error("A process that a task has forked failed:\n%s", traceback_in_log(exc))
        send_left()
    finally:
        os._exit(code & 0xFF if isinstance(code, int) else 1)


def retried(rule: str, *, for_error: bool = True, instead: Ignore | Retry | None = None) -> RunEnd:
    """The end of a run whose message is followed by another one.

    :param rule: the rule that decided.
    :param for_error: whether it is for an error. A body may also ask to run again later without one.
    :param instead: goes to Celery in place of the exception that the body raised.
    """
    return RunEnd(retried=True, for_error=for_error, rule=rule, instead=instead)


def died(
    request: Context,
    exc: BaseException,
    decision: Decision,
    reason: Reason,
    why: str = "",
    *,
    instead: BaseException | None = None,
) -> RunEnd:
    """The end of the run of ``request``, whose message died of ``exc``, with everything that only this
    process knows.

    :param why: added to the decision's evidence.
    :param instead: goes to Celery in place of the exception that the body raised.
    """
    last = attempt_of(request, exc, with_evidence(decision.explanation(), why))
    failure = failure_after(
        (*read_attempts(request.headers), last),
        reason,
        # Celery has not formatted the traceback yet; it is added when the end is reported.
        traceback="",
        grounds=grounds_of(exc, decision),
        log=_log_of_this_run(),
    )
    return RunEnd(failure=failure, exc=exc, instead=instead)


def _log_of_this_run() -> str:
    log = current_run().log
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
    about = subject(exc)
    return new_attempt(
        vars(request), request.headers, type_name(type(about)), safe_message(about), explanation,
        delay_s=delay_s, worker=request.hostname or "", pid=os.getpid(),
    )  # fmt: skip


def with_evidence(explanation: Explanation, more: str) -> Explanation:
    """``explanation`` with ``more`` added to its evidence."""
    evidence = "; ".join(filter(None, (explanation.evidence, more)))
    return replace(explanation, evidence=evidence)


def send_left() -> None:
    """Send a retry that was not reported, because the body went on after it and ended in another way."""
    own = current_run()
    waiting, own.waiting = own.waiting, None
    with logged(logger, "celery_dlq could not send a retry that its task went on after"):
        if waiting is not None:
            waiting.send()
