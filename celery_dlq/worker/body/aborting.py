"""Exceptions that would end more than the task that raised them."""

from __future__ import annotations

from billiard.common import terminate_handler_fired
from celery.exceptions import WorkerShutdown, WorkerTerminate

from celery_dlq.classify import is_a
from celery_dlq.errors import TaskAborted
from celery_dlq.redact import safe_message
from celery_dlq.worker.failure import type_name

#: From libraries that may not be installed: the end of a greenlet, and the time limit of the gevent pool.
_ENDS_OF_GREENLETS = frozenset({"greenlet.GreenletExit", "gevent.timeout.Timeout"})


def aborted(exc: BaseException) -> TaskAborted:
    """An ordinary exception in place of ``exc``, which would end the worker."""
    return TaskAborted(f"{type_name(type(exc))}: {safe_message(exc)}")


def is_shutdown(exc: BaseException) -> bool:
    """Whether ``exc`` does not come from the task, but from outside, because its process, its greenlet or (in
    the solo pool) its worker is being ended."""
    return (
        terminate_handler_fired()
        or is_a(exc, (WorkerShutdown, WorkerTerminate))
        or not _ENDS_OF_GREENLETS.isdisjoint(map(type_name, type(exc).__mro__))
    )
