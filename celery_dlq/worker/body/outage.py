"""Failures during an outage, that is, while their circuit is open, do not use up an attempt.

The process of a pool that runs a body does not know the circuits. It asks the breakers that it inherited from
its parent. The parent's breakers share with it the names of the circuits that are open, or that one more
failure would open.
"""

from __future__ import annotations

from typing import Any

from celery.app.task import Context
from celery.exceptions import Retry

from celery_dlq.model.headers import free_runs
from celery_dlq.worker.body.retrying import cause_of
from celery_dlq.worker.wiring import CapturedTask


def is_outage(task: CapturedTask, request: Context) -> bool:
    """Whether the circuit of ``request`` is open, or would open with this transient failure."""
    if not task.dlq_breaker_failures:
        return False
    args, kwargs = request.args or (), request.kwargs or {}
    return any(breaker.opens_with(task, args, kwargs) for breaker in task._wiring.breakers)


def limit_of_own_retry(
    task: CapturedTask, request: Context, exc: Any, max_retries: int | None
) -> tuple[int | None, int]:
    """The ``max_retries`` for a ``retry()`` that a body calls, and the number of runs so far that used up no
    attempt. Celery counts every run, so this number is added to the limit. A task that may run only once
    still runs only once.

    :param max_retries: the body's own; None for the task's.
    """
    limit = task.max_retries if max_retries is None else max_retries
    if not task.dlq_breaker_failures or not limit or isinstance(cause_of(exc), Retry):
        return max_retries, 0
    free = free_runs(request.headers) + is_outage(task, request)
    return (int(limit) + free if free else max_retries), free
