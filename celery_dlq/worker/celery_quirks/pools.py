"""Pools: prefork keeps some jobs and forgets others, and gevent makes Celery's signal handlers fail."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import cached_property, partial
from traceback import walk_stack
from typing import Any

from billiard import common
from celery.platforms import EX_FAILURE
from celery.utils.log import get_logger
from celery.worker import state

from celery_dlq.classify.evidence import dotted_name, read

logger: logging.Logger = get_logger(__name__)

#: The properties whose locks are replaced in a forked process.
_LOCKED: set[cached_property[Any]] = set()

#: The signals that ask a worker to shut down.
_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def renew_locks_after_fork(app: Any) -> None:
    """Give each process that this one forks free locks for the properties that kombu and Celery compute once.
    Without this, such a process may hang for ever when it first sends a message, for example a retry.

    ``kombu.utils.objects.cached_property`` has one lock for all instances of its class, and holds it at each
    access (kombu 5.7.0, line 37; the same since 5.5). A worker of this package has threads in its parent
    process that open connections: redrives, parked retries, automatic redrives. If a process of the pool is
    forked while one of them computes ``Channel.client``, the lock stays held in the new process. No issue
    upstream names this, as of November 2026.

    It can be deleted when kombu's property has no lock, or renews it after a fork.
    ``tests/unit/worker/celery_quirks/test_forked_locks.py`` fails without it.
    """
    if not _LOCKED:
        os.register_at_fork(after_in_child=_renew_locks)
    with app.connection_for_write() as connection:
        transport = connection.transport
        channel = getattr(transport, "Channel", object)
        used = app, app.amqp, app.backend, app.dead_letter_queue, connection, transport
    for kind in (*map(type, used), channel):
        for base in kind.__mro__:
            made = (one for one in vars(base).values() if isinstance(one, cached_property))
            _LOCKED.update(one for one in made if hasattr(one, "lock"))


def _renew_locks() -> None:
    for one in _LOCKED:
        one.lock = threading.RLock()  # type: ignore[attr-defined]


def forget_job(pool: Any, request: Any) -> None:
    """Remove the job of ``request`` from ``pool`` (a worker's), because it could not be pickled. Otherwise
    billiard keeps it, and a shutdown waits for its end. Does nothing on pools other than prefork.

    ``Pool.apply_async`` registers a job in the pool's cache before it pickles the job for a process (billiard
    4.3.2, pool.py, lines 1620 and 1636). If that raises, for example because a message nests too deeply, the
    job stays in the cache, though no process has it. No issue upstream names this, as of November 2026.

    It can be deleted when billiard forgets a job that it could not hand over. ``assert_nothing_is_kept`` in
    ``tests/unit/worker/end/test_handover.py`` fails without it.
    """
    jobs = getattr(getattr(pool, "_pool", None), "_cache", None)
    for job in [*jobs.values()] if isinstance(jobs, dict) else ():
        accepted = getattr(job, "_accept_callback", None)
        if getattr(accepted, "__self__", None) is request:
            job.discard()


def free_slots_in_turn(controller: Any) -> None:
    """Let ``controller`` (a worker) free the slots of its pool one after the other. Otherwise requests that
    wait for a slot and do not use it end in a ``RecursionError`` if there are some hundred. Does nothing if
    the worker counts no slots.

    ``LaxBoundedSemaphore.release`` calls the next request that waits for the slot (kombu 5.7.0,
    asynchronous/semaphore.py, line 90). If that one frees the slot at once, because it is revoked (celery
    5.7.0, worker/worker.py, line 297), or because this package holds, parks or refuses it, the call has one
    more level for each request. Some that the error has passed through are lost until the worker ends. No
    issue upstream names this, as of November 2026.

    It can be deleted when kombu's semaphore calls its waiters in a loop.
    ``tests/unit/worker/celery_quirks/test_slots.py`` fails without it.
    """
    release = getattr(controller, "_quick_release", None)
    if release is not None:
        controller._quick_release = _InTurn(release)


class _InTurn:
    """Calls ``release`` again when it has returned, and not while it runs."""

    def __init__(self, release: Callable[[], object]) -> None:
        self._release, self._due, self._runs = release, 0, False

    def __call__(self) -> None:
        self._due += 1
        if self._runs:
            return
        self._runs = True
        try:
            while self._due:
                self._due -= 1
                self._release()
        finally:
            self._runs = False


def keep_jobs(pool: Any) -> None:
    """Let ``pool`` (a worker's) keep the jobs that its processes have, whether the bodies have begun or not.
    Otherwise a warm shutdown of prefork gives messages back though their bodies end. Does nothing on other
    pools.

    When its consumer closes, Celery forgets the jobs that were handed to a process and not seen to begin:
    ``AsynPool.flush`` (celery 5.7.0, concurrency/asynpool.py, line 1090; since celery/celery#10151). The
    process runs them all the same. The parent does not acknowledge them, so they run again. It does not read
    their results either, and the process waits half a minute for that before it ends
    (``Worker._ensure_messages_consumed``; billiard 4.3.2, pool.py, line 451).

    A job that is only partly in its process's pipe is not written to its end when the pool is closed (line
    1107; the same since Celery 5.5). The process waits for the rest for ever, and the worker waits for the
    process. No issue upstream names either, as of November 2026.

    Before 5.6.3, ``flush`` forgets all jobs when a connection is lost, so that no results of theirs are read.

    It can be deleted when ``flush`` leaves the jobs of living processes alone, and writes them to their ends.
    ``tests/integration/capture/test_warm_stops.py`` fails without it.
    """
    jobs = getattr(pool, "_pool", None)
    # This function is called for each connection to the broker, but replaces the method once.
    if hasattr(jobs, "outbound_buffer") and not isinstance(pool.flush, partial):
        pool.flush = partial(_flush, jobs, pool.flush)


def _flush(pool: Any, flush: Callable[[], object]) -> None:
    """Called when the consumer closes, because the worker shuts down or has lost its connection."""
    kept = {number: job for number, job in [*pool._cache.items()] if _is_kept(pool, job)}
    flush()
    # Before 5.6.3, Celery forgets all jobs when a connection is lost.
    pool._cache.update((number, job) for number, job in kept.items() if not job.ready())


def _is_kept(pool: Any, job: Any) -> bool:
    """Whether a process has ``job``. If so, it gets the rest, and Celery keeps the job."""
    try:
        if job._write_to is None or job in pool.outbound_buffer:
            return False
        writer = getattr(job, "_writer", lambda: None)()
        if writer is not None:
            pool._flush_writer(job._write_to, writer)
    except Exception:
        logger.exception("celery_dlq could not keep a job that a process of the pool has")
        return False
    # If the process ends without beginning the job, no other one gets it: its message is delivered again.
    job._accepted = True
    return True


def is_terminated(billiard: Any = common) -> bool:
    """Whether a signal is ending this process of prefork, so that a ``SystemExit`` is not the task's own.

    Billiard has ``terminate_handler_fired`` since 4.3.1. Celery 5.5 and 5.6 run with billiard 4.2, too, which
    has only the flag that this function returns (billiard 4.2.1 to 4.3.2, common.py, ``_shutdown_cleanup``).

    It can be deleted when all supported versions of Celery require billiard 4.3.1.
    ``tests/unit/worker/celery_quirks/test_terminated.py`` fails without it.

    :param billiard: the module ``billiard.common``.
    """
    has_fired = getattr(billiard, "terminate_handler_fired", None)
    return bool(has_fired() if has_fired else billiard._should_have_exited[0])


def is_green(pool: Any) -> bool:
    """Whether ``pool`` runs its tasks as greenlets."""
    return bool(getattr(pool, "is_green", False))


def is_of_green_pool(exc: BaseException) -> bool:
    """Whether ``exc`` is how Celery ends the greenlet that runs here: by killing it, or at its time limit.
    Libraries raise both exceptions for reasons of their own, too. These belong to the task.

    The gevent pool starts its timer before the body begins (celery 5.7.0, concurrency/gevent.py, line 33), so
    no timer of the body with the same seconds is over earlier. The limit may be that of the message, of the
    task, or of the worker's command line, and only the frame of ``apply_timeout`` has it.
    """
    names = {dotted_name(cls) for cls in type(exc).__mro__}
    if "gevent.timeout.Timeout" in names:
        frames = (frame for frame, _ in walk_stack(None) if frame.f_code.co_name == "apply_timeout")
        return read(exc, "seconds") in [frame.f_locals.get("timeout") for frame in frames]
    is_exit = "greenlet.GreenletExit" in names
    return is_exit and hasattr(sys.modules["greenlet"].getcurrent(), "dlq_killed")


def _kill(pool: Any, terminate_job: Callable[..., object], pid: int, *args: Any) -> None:
    """Mark the greenlet that Celery is about to kill: its message was revoked, or its run is cancelled."""
    greenlet = pool._pool_map.get(pid)
    if greenlet is not None:
        greenlet.dlq_killed = True
    terminate_job(pid, *args)


class GreenShutdown:
    """Runs Celery's signal handlers in greenlets of their own, and admits no message after a cold shutdown.

    gevent runs signal handlers in its event loop, the hub, where nothing can wait. Celery's handlers do wait:
    ``on_cold_shutdown`` for the soft shutdown's timeout, for the broker, and for the result backend (celery
    5.7.0, apps/worker.py, lines 463 to 486). They raise at the first wait; so tasks were cut off without a
    record. Before 5.7 the worker did not even end then: since 5.7, ``_shutdown_handler`` sets the flag in a
    ``finally`` (line 350). Needed with Celery 5.5 to 5.7. Upstream: celery/celery#6111, open; the same cause
    with eventlet was celery/celery#10083, fixed for the handler's own output only.

    It can be deleted when Celery's handlers run outside the hub. The matrix shows that: ``cold_shutdown`` and
    ``soft_shutdown`` with gevent, in ``tests/integration/test_matrix_on_redis.py``. :func:`_terminate_after`
    can be deleted with Celery 5.6.
    """

    def __init__(self) -> None:
        self._consumer: Any = None
        self._is_cold = False

    def join(self, consumer: Any, onward: Callable[[Any], object]) -> bool:
        """Messages have to pass this guard if tasks run as greenlets. Called once, before the worker
        starts."""
        self._consumer, pool = consumer, consumer.pool
        if is_green(pool):
            pool.terminate_job = partial(_kill, pool, pool.terminate_job)
        return is_green(pool)

    def admits(self, request: Any) -> bool:
        """Whether no cold shutdown has begun. During one, Celery's handler waits for the broker, and may
        receive messages in the meantime; with a full pool it would wait forever. A message that is not
        admitted is left alone: the broker delivers it again when the connection is closed."""
        return not self._is_cold

    def start(self) -> None:
        """Wrap Celery's signal handlers, which are set by now."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        if is_green(self._consumer.pool) and in_main_thread:  # only it can set handlers
            self._wrap_handlers()

    def stop(self) -> None:
        """At the end of a cold shutdown, cancel the tasks that Celery's handler has not cancelled: a task
        that began in the meantime; or all tasks, if another greenlet was using the connection to the
        broker."""
        if is_green(self._consumer.pool) and state.should_terminate not in (None, False):
            time.sleep(0)  # tasks that were given to the pool begin, and so can be cancelled
            self._consumer.cancel_active_requests()

    def _wrap_handlers(self) -> None:
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if getattr(handler, "__module__", "") == "celery.apps.worker":
                signal.signal(number, partial(self._handle, handler))

    def _handle(self, handler: Any, number: int, frame: Any) -> None:
        is_cold = handler.__name__ == "worker_Cold"
        self._is_cold = self._is_cold or is_cold
        spawn = self._consumer.pool.spawn_n
        spawn(partial(_terminate_after, handler) if is_cold else handler, number, frame)
        # Celery's handler begins by setting other handlers, for the next signal.
        spawn(self._wrap_handlers)


def _terminate_after(handler: Callable[..., object], number: int, frame: Any) -> None:
    """Before 5.7, Celery's handler of cold shutdowns ends the worker only if nothing fails on its way. It may
    fail to notify the broker, on a connection that the consumer's greenlet is reading."""
    try:
        handler(number, frame)
    except Exception as error:  # noqa: BLE001 - a signal came: the worker has to end
        logger.warning("the shutdown continues, though Celery's handler failed: %r", error)
    finally:
        if state.should_terminate in (None, False):
            state.should_terminate = EX_FAILURE
