"""Run database work in a few threads of its own, so that Flower's event loop is not blocked, with a limit on
the waiting time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from celery_dlq.base.bounded import in_thread
from celery_dlq.errors import StoreUnavailable

T = TypeVar("T")

#: Concurrent calls.
THREADS = 4

#: Cached aggregates at most.
_KEPT = 64


class NotYet(StoreUnavailable):
    """The dead-letter store has not answered in time; check that the database is up, or ask for less."""


class Calls:
    """Runs blocking work in threads.

    :param patience_s: seconds after which the caller gets an error. The work continues, and occupies its
        thread until it ends.
    """

    def __init__(self, patience_s: float, threads: int = THREADS) -> None:
        self.patience_s = patience_s
        self._slots = asyncio.Semaphore(threads)

    async def run(self, work: Callable[[], T]) -> T:
        """The result of ``work``, or its exception.

        :raises NotYet: it took too long, or all threads are busy.
        """
        return await self.wait(self.start(work))

    async def wait(self, started: asyncio.Future[T]) -> T:
        """The result of ``started``, which continues after this stops waiting.

        :raises NotYet: it took too long.
        """
        try:
            return await asyncio.wait_for(asyncio.shield(started), self.patience_s)
        except asyncio.TimeoutError:
            started.add_done_callback(look_at)
            raise NotYet(
                f"The dead-letter store has not answered for {self.patience_s:g} seconds; "
                "check that the database is up, or ask for less."
            ) from None

    def start(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Start ``work`` as soon as a thread is free."""
        return asyncio.ensure_future(self._run(work))

    async def _run(self, work: Callable[[], T]) -> T:
        await self._slots.acquire()
        loop = asyncio.get_running_loop()

        def free(_job: object) -> None:
            with contextlib.suppress(RuntimeError):  # Flower has ended in the meantime
                loop.call_soon_threadsafe(self._slots.release)

        job = in_thread(work, "dlq-flower")
        job.add_done_callback(free)
        return await asyncio.wrap_future(job)


def look_at(future: asyncio.Future[Any]) -> None:
    """Retrieve the exception of an abandoned future; otherwise asyncio logs that it was never retrieved."""
    if not future.cancelled():
        future.exception()


class Snapshots:
    """A cache of aggregates that may be a few seconds old. Concurrent requests share one call."""

    def __init__(self, calls: Calls, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._calls, self._monotonic = calls, monotonic
        #: The results, each with the time until which it is kept.
        self._kept: dict[Hashable, tuple[Any, float]] = {}
        #: Calls that have begun since the last change.
        self._running: dict[Hashable, asyncio.Future[Any]] = {}

    async def get(self, key: Hashable, ttl_s: float, work: Callable[[], T]) -> T:
        """The result of ``work`` from at most ``ttl_s`` seconds ago, or a new one.

        :raises NotYet: it took too long. The result is cached for the next request.
        """
        kept = self._kept.get(key)
        if kept is not None and kept[1] > self._monotonic():
            value: T = kept[0]
            return value
        if key not in self._running:
            started = self._calls.start(work)
            self._running[key] = started
            started.add_done_callback(lambda done: self._keep(key, ttl_s, done))
        return await self._calls.wait(self._running[key])

    def forget(self) -> None:
        """Clear the cache, after a change in the store. Calls that have begun before may not have seen it, so
        their results go only to those who wait for them."""
        self._kept.clear()
        self._running.clear()

    def _keep(self, key: Hashable, ttl_s: float, done: asyncio.Future[Any]) -> None:
        is_current = self._running.get(key) is done
        if is_current:
            del self._running[key]
        if done.cancelled() or done.exception() is not None or not is_current:
            return
        self._kept.pop(key, None)
        self._kept[key] = (done.result(), self._monotonic() + ttl_s)
        while len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
