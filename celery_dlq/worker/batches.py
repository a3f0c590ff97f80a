"""Batches of celery-batches, for tasks that derive from its ``Batches`` and from ``DLQTask``.

``Batches`` gives a list of messages to one run of the body, logs the exception of the body, and acknowledges
all messages. Here the end of that run becomes the end of each of its messages: another attempt, or a letter.
A batch that succeeds ends as in celery-batches.

The messages of batches do not pass the guards before the pool (circuit, count of deliveries), except
for the check for copies of a redriven message. See the page about celery-batches in the documentation.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from billiard.einfo import ExceptionInfo
from celery import signals, states
from celery._state import _task_stack
from celery.app.task import Context
from celery.exceptions import InvalidTaskError, Retry
from celery.utils.log import get_logger
from celery.utils.serialization import get_pickleable_exception
from kombu.utils.uuid import uuid

from celery_dlq.worker.body.answer import answer
from celery_dlq.worker.body.ending import begin_run, leave_fork, send_left
from celery_dlq.worker.body.report import report_end
from celery_dlq.worker.failure import aborted, is_shutdown
from celery_dlq.worker.request.classes import RecordedRequest
from celery_dlq.worker.request.request import DLQRequest

logger: logging.Logger = get_logger(__name__)


def is_batched(task: Any) -> bool:
    """Whether ``task`` takes its messages in batches."""
    library = sys.modules.get("celery_batches")
    return library is not None and isinstance(task, library.Batches)


def has_own_flush(task: Any) -> bool:
    """Whether a user's class decides how the batches of ``task`` are run."""
    return bool(type(task).flush is not sys.modules["celery_batches"].Batches.flush)


def take_over(task: Any, consumer: Any) -> None:
    """Run the batches of ``task`` here from now on."""
    if is_batched(task) and not has_own_flush(task):
        task.flush = Flush(task, consumer.pool)


class Flush:
    """Replaces ``Batches.flush``, which a task's strategy calls with each batch."""

    def __init__(self, task: Any, pool: Any) -> None:
        self._task, self._pool = task, pool

    def __call__(self, requests: Iterable[Any]) -> None:
        """Run ``requests``. A request that may be one of several copies runs alone, once the store has said
        which copy runs."""
        ready = [
            one for one in requests
            if not (isinstance(one, DLQRequest) and one.dlq.copies.asks(one, self._run_alone))
        ]  # fmt: skip
        if ready:
            self._run(ready)

    def _run_alone(self, request: Any) -> None:
        self._run([request])

    def _run(self, requests: Sequence[Any]) -> None:
        from celery_batches import SimpleRequest

        batch = _Batch(requests)
        self._pool.apply_async(
            run_batch,
            (
                self._task,
                [SimpleRequest.from_request(request) for request in requests],
                [dict(request._payload[2] or {}) for request in requests],
            ),
            accept_callback=batch.on_accepted,
            callback=batch.on_return,
            error_callback=batch.on_lost,
            timeout_callback=batch.on_timeout,
        )


@dataclass(frozen=True)
class _Batch:
    """The requests of one run, in the worker's parent. If ending one request raises, the others are still
    ended."""

    requests: Sequence[Any]

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        """Called when a process has started the run."""
        for request in self.requests:
            request.worker_pid = pid
            if isinstance(request, RecordedRequest):
                request.record_acceptance(pid)
            if not request.task.acks_late:
                request.acknowledge()

    def refuse(self, error: InvalidTaskError) -> None:
        """Called when the pool did not take the run."""
        for request in self.requests:
            _guarded(request, partial(_refuse, request, error))

    def on_return(self, ends: Any) -> None:
        """Called when the body has ended."""
        if isinstance(ends, ExceptionInfo):  # from a pool without processes
            self.on_lost(ends)
            return
        for place, request in enumerate(self.requests):
            if ends is None:
                _guarded(request, partial(_succeed, request))
            else:
                _guarded(request, partial(request.on_failure, ends[place], return_ok=True))

    def on_lost(self, einfo: ExceptionInfo) -> None:
        """Called when the process of the run has died."""
        for request in self.requests:
            _guarded(request, partial(request.on_failure, einfo))

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Called when a time limit is over."""
        for request in self.requests:
            _guarded(request, partial(request.on_timeout, soft, timeout))


def _refuse(request: Any, error: InvalidTaskError) -> None:
    # A user's Request class that cannot be combined with ours does not have this method.
    request.refuse(error)


def _succeed(request: Any) -> None:
    if "on_success" in vars(request):  # its message came back, and the store waits for its outcome
        request.on_success((False, None, 0.0))
    elif request.task.acks_late:
        request.acknowledge()
    elif isinstance(request, RecordedRequest):
        request.end_record()


def _guarded(request: Any, end: Callable[[], object]) -> None:
    try:
        end()
    except Exception:
        logger.exception("celery_dlq could not end %s[%s] of a batch", request.name, request.id)


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
        return tuple(map(partial(_end_of, task, _reason(exc)), messages, embeds))
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


def _reason(exc: BaseException) -> BaseException:
    """Why the batch failed. A ``retry()`` of the body names no message, so Celery has not sent one."""
    if not isinstance(exc, Retry):
        return exc
    return exc.exc if isinstance(exc.exc, BaseException) else aborted(exc)


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
