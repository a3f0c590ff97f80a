"""Runs a batch of celery-batches in the pool, and answers its exception for each of its messages."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from billiard.einfo import ExceptionInfo
from celery import signals, states
from celery._state import _task_stack
from celery.app.task import Context
from celery.exceptions import Retry
from celery.utils.log import get_logger
from celery.utils.serialization import get_pickleable_exception
from kombu.utils.uuid import uuid

from celery_dlq.worker.body.answer import answer
from celery_dlq.worker.body.ending import begin_run, leave_fork, send_left
from celery_dlq.worker.body.report import report_end
from celery_dlq.worker.failure import aborted, is_shutdown

logger: logging.Logger = get_logger(__name__)


def run_batch(
    task: Any, messages: Sequence[Any], embeds: Sequence[Mapping[str, Any]]
) -> tuple[ExceptionInfo, ...] | None:
    """Run the body of ``task`` with ``messages`` (celery-batches' SimpleRequest), in the pool.

    :param embeds: the callbacks, chain and chord of each message, which its retry keeps.
    :return: the end of each message; None if the body succeeded.
    """
    begin_run()
    try:
        _run_body(task, messages)
        leave_fork()
    except BaseException as exc:
        leave_fork(exc)
        if is_shutdown(exc):
            raise
        logger.exception("A batch of %d messages of %s failed", len(messages), task.name)
        if isinstance(exc, Retry):  # it names no message, so Celery has not sent one
            exc = exc.exc if isinstance(exc.exc, BaseException) else aborted(exc)
        return tuple(map(partial(_end_of, task, exc), messages, embeds))
    return None


def _run_body(task: Any, messages: Sequence[Any]) -> None:
    """Run the body as celery-batches does: under an id for the batch, and with Celery's signals."""
    about = {"task_id": uuid(), "task": task, "args": (messages,), "kwargs": {}}
    retval, state = None, states.FAILURE
    _task_stack.push(task)
    task.request_stack.push(Context())
    try:
        signals.task_prerun.send(sender=task, **about)
        retval = task(messages)
        state = states.SUCCESS
        signals.task_success.send(sender=task, result=retval)
    finally:
        try:
            signals.task_postrun.send(sender=task, retval=retval, state=state, **about)
        finally:
            task.request_stack.pop()
            _task_stack.pop()


def _end_of(task: Any, exc: BaseException, message: Any, embed: Mapping[str, Any]) -> ExceptionInfo:
    """The end of ``message``. It is unknown which message of the batch caused ``exc``, so each is judged by
    the same rules, and with its own attempts, as if it had run alone."""
    request = {**message.request_dict, "hostname": message.hostname, "is_eager": False, **embed}
    context = Context(request, called_directly=False)
    begin_run()
    task.request_stack.push(context)
    try:
        told = answer(task, exc, context) or exc
    finally:
        task.request_stack.pop()
    if not isinstance(told, Exception) or isinstance(told, MemoryError):
        told = aborted(told)
    safe = get_pickleable_exception(told)
    einfo = ExceptionInfo((type(safe), safe, exc.__traceback__))
    report_end(einfo, request)
    send_left()
    return einfo
