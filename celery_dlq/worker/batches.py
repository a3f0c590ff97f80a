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
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.exceptions import InvalidTaskError
from celery.utils.log import get_logger

from celery_dlq.worker.body.batch import run_batch
from celery_dlq.worker.end.classes import RecordedRequest
from celery_dlq.worker.end.request import DLQRequest
from celery_dlq.worker.failure import logged

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

        def run_alone(request: Any) -> None:
            self._run([request])

        ready = [
            one for one in requests
            if not (isinstance(one, DLQRequest) and one.dlq.copies.asks(one, run_alone))
        ]  # fmt: skip
        if ready:
            self._run(ready)

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
            with _ending(request):
                # A user's Request class that cannot be combined with ours does not have this method.
                request.refuse(error)

    def on_return(self, ends: Any) -> None:
        """Called when the body has ended."""
        if isinstance(ends, ExceptionInfo):  # from a pool without processes
            self.on_lost(ends)
            return
        for place, request in enumerate(self.requests):
            with _ending(request):
                if ends is None:
                    _succeed(request)
                else:
                    request.on_failure(ends[place], return_ok=True)

    def on_lost(self, einfo: ExceptionInfo) -> None:
        """Called when the process of the run has died."""
        for request in self.requests:
            with _ending(request):
                request.on_failure(einfo)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Called when a time limit is over."""
        for request in self.requests:
            with _ending(request):
                request.on_timeout(soft, timeout)


def _ending(request: Any) -> AbstractContextManager[None]:
    said = "celery_dlq could not end %s[%s] of a batch"
    return logged(logger, said, request.name, request.id)


def _succeed(request: Any) -> None:
    if "on_success" in vars(request):  # its message came back, and the store waits for its outcome
        request.on_success((False, None, 0.0))
    elif request.task.acks_late:
        request.acknowledge()
    elif isinstance(request, RecordedRequest):
        request.end_record()
