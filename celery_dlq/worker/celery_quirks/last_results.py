"""Warm shutdowns of prefork that take half a minute, with Celery 5.6.3 and 5.7.

A process of the pool that is told to end waits until the worker's parent has counted all its results, for
30 s at most: ``Worker._ensure_messages_consumed`` (billiard 4.3.2, pool.py, line 451; celery/billiard#279).
When its consumer closes, Celery forgets the jobs that it has handed to processes and not yet seen begin:
``AsynPool.flush`` (celery 5.7.0, concurrency/asynpool.py, line 1090; since celery/celery#10151). Then it
reads results only as long as it remembers a job: ``while cache`` in ``ResultHandler.on_stop_not_started``
(line 377). So the results of the other jobs are not read, and their processes wait; they wait forever if a
result does not fit into its pipe. A supervisor with less patience kills the worker, and the tasks that run in
it are lost unless they are acknowledged late. No issue upstream names this, as of November 2026.

Celery up to 5.6.2 forgets no job: all results have been read when this begins. It can be deleted when
``flush`` leaves the jobs of living processes alone; ``tests/integration/capture/test_last_results.py`` fails
without it.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from functools import partial
from typing import Any

from billiard.pool import TERMINATE, WorkersJoined
from celery.utils.log import get_logger

logger = get_logger(__name__)

#: Milliseconds between two checks whether all processes have ended.
LOOK_MS = 50

#: More results than a process has.
_ALL = 2**30


def read_last_results(pool: Any) -> None:
    """Read the results of the processes of ``pool`` (a worker's) until the processes have ended. Does nothing
    on pools other than prefork."""
    handler: Any = getattr(getattr(pool, "_pool", None), "_result_handler", None)
    # This function is called for each connection to the broker, but replaces the method once.
    if hasattr(handler, "fileno_to_outq") and "on_stop_not_started" not in vars(handler):
        handler.on_stop_not_started = partial(_stop, handler, handler.on_stop_not_started)


def _stop(handler: Any, stop: Callable[[], object]) -> None:
    """Called when the pool is joined: its processes have been told to end."""
    stop()
    try:
        _read_on(handler)
    except WorkersJoined:
        pass
    except Exception:
        # The worker still waits for its processes, only longer.
        logger.exception("celery_dlq could not read the last results of the pool")


def _read_on(handler: Any) -> None:
    """Read the results of all processes, so that none of them waits.

    :raises WorkersJoined: all have ended.
    """
    for counter in handler.on_ready_counters.values():
        # Before 4.3.2, billiard does not count the result of a forgotten job. The lock is not taken, because
        # a process that was killed may hold it.
        counter.get_obj().value = _ALL
    closed: set[int] = set()
    while handler._state != TERMINATE:
        handler.join_exited_workers(shutdown=True)
        poller = select.poll()
        for fd in handler.fileno_to_outq.keys() - closed:
            poller.register(fd, select.POLLIN)
        for fd, _ in poller.poll(LOOK_MS):
            handler._flush_outqueue(fd, closed.add, handler.fileno_to_outq, handler.on_state_change)
