"""Answers the exception that ended a run, in this order: judge it, decide on the next step, take that step,
and note the end of the run for the worker's parent."""

from __future__ import annotations

import logging
from dataclasses import replace

from celery.app.task import Context
from celery.exceptions import Ignore, Reject, Retry
from celery.utils.log import get_logger

from celery_dlq.base.redact import safe_message
from celery_dlq.classify import Decision, is_a
from celery_dlq.model.states import Reason, Verdict
from celery_dlq.worker.body.again import (
    ASKED_FOR,
    next_step,
    policy_of,
    refused_rejected,
    refused_with,
    send,
    successor_of,
)
from celery_dlq.worker.body.ending import (
    FINISHED,
    RunEnd,
    current_run,
    died,
    leave_fork,
    retried,
)
from celery_dlq.worker.body.judge import decide
from celery_dlq.worker.body.trace import mark_end
from celery_dlq.worker.failure import aborted, is_shutdown, type_name
from celery_dlq.worker.options import TaskOptions
from celery_dlq.worker.secrecy import hidden

logger: logging.Logger = get_logger(__name__)

#: Why a retry that the body raised itself ends its message: only Celery's retry() sends the next one.
_UNSENT = " itself, which sends no message; call self.retry() instead"


def answer(task: TaskOptions, exc: BaseException, request: Context) -> BaseException | None:
    """Retry the run that ``exc`` ended, or let its message die.

    :return: the exception that goes to Celery in place of ``exc``; None for ``exc`` itself.
    """
    try:
        if request.is_eager:
            return _retry_eagerly(task, exc, request)
        leave_fork(exc)
        ending = _ending(task, exc, request)
        if ending is not None and ending.retried and current_run().unsent is not None:
            ending = refused_rejected(request)
        if ending is None:
            return None
        current_run().ending = ending
        mark_end(task, request, ending)
    except Exception as error:
        if error is not exc:
            # The task's own error must reach Celery whatever happens here.
            logger.exception("celery_dlq could not judge the failure of %s", task.name)
        return None
    return None if ending.instead is exc else ending.instead


def finish(request: Context) -> None:
    """Called when the body has returned.

    :raises Retry: the body has asked for it, and nothing has sent it.
    """
    if request.is_eager:
        return
    leave_fork()
    run = current_run()
    if run.unsent is not None:
        raise run.unsent
    run.ending = FINISHED


def _ending(task: TaskOptions, exc: BaseException, request: Context) -> RunEnd | None:
    """How the run ended; None if the parent sees that in ``exc`` itself."""
    sent = successor_of(request)
    if is_a(exc, Retry):
        is_sent = exc.sig is not None or sent is not None
        # The error was given to retry(), or was being handled where retry() was called.
        for_error = exc.exc is not None or exc.__context__ is not None
        asked_for = retried(ASKED_FOR.rule, for_error=for_error)
        return asked_for if is_sent else _aborted(request, exc, _UNSENT)
    if is_a(exc, (Ignore, Reject)):
        if sent is not None and exc is not sent and getattr(exc, "requeue", True):
            return retried(ASKED_FOR.rule, for_error=False, instead=sent)
        return refused_rejected(request) if is_a(exc, Reject) else None
    if is_a(exc, MemoryError):
        # The worker's parent re-raises a MemoryError that reaches it, and exits.
        return _aborted(request, exc)
    if is_a(exc, Exception):
        return None if task._built_in else _judged(task, exc, request)
    if is_shutdown(exc):
        return None
    ending = _aborted(request, exc) if task._built_in else _judged(task, exc, request)
    return replace(ending, instead=ending.instead or aborted(exc))


def _judged(task: TaskOptions, exc: BaseException, request: Context) -> RunEnd:
    decision, sent = decide(task, exc), successor_of(request)
    if sent is not None and decision.verdict is Verdict.TRANSIENT:
        logger.warning(
            "%s failed after its retry was sent: %s", request.id, hidden(safe_message(exc))
        )
        return retried(decision.rule, instead=sent)
    step = refused_with(request, exc, decision) or next_step(task, exc, request, decision)
    return step if isinstance(step, RunEnd) else send(task, exc, request, step)


def _aborted(request: Context, exc: BaseException, why: str = "") -> RunEnd:
    evidence = f"the task raised {type_name(type(exc))}{why}"
    decision = Decision(Verdict.TERMINAL, rule="task.aborted", evidence=evidence)
    return died(request, exc, decision, Reason.TERMINAL, instead=aborted(exc))


def _retry_eagerly(task: TaskOptions, exc: BaseException, request: Context) -> Retry | None:
    """The retry of an eager call. It behaves as on the plain base class, where only autoretry_for retries."""
    if (
        task._built_in
        or not is_a(exc, Exception)
        or is_a(exc, (Retry, Ignore, Reject, MemoryError))
    ):
        return None
    decision = decide(task, exc)
    if decision.rule != "task.autoretry_for" or refused_with(request, exc, decision) is not None:
        return None
    options = dict(task.retry_kwargs)
    if task.retry_backoff:
        options["countdown"] = policy_of(task).backoff(request.retries + 1)
    again: Retry = task.retry(**{**options, "exc": exc, "throw": False})
    return again
