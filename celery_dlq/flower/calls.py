"""Database work beside Flower's event loop: in threads of its own, few at a time, waited for a bounded
time."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from celery_dlq.errors import StoreUnavailable

T = TypeVar("T")

#: Pieces of work under way at a time.
THREADS = 4

#: Aggregates that are kept.
_KEPT = 64


class NotYet(StoreUnavailable):
    """The dead-letter store has not answered in time; check that the database is up, or ask for less."""


class Calls:
    """Runs blocking work in threads.

    :param patience_s: seconds after which a caller is told that the store does not answer. Its work
        goes on, and its thread is not free until it ends.
    """

    def __init__(self, patience_s: float, threads: int = THREADS) -> None:
        self.patience_s = patience_s
        self._slots = asyncio.Semaphore(threads)

    async def run(self, work: Callable[[], T]) -> T:
        """What ``work`` returns or raises.

        :raises NotYet: it took too long, or all threads are taken.
        """
        return await self.wait(self.start(work))

    async def wait(self, started: asyncio.Future[T]) -> T:
        """What ``started`` comes to, which goes on when nobody waits any more.

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
        """Begin with ``work`` as soon as a thread is free."""
        return asyncio.ensure_future(self._run(work))

    async def _run(self, work: Callable[[], T]) -> T:
        await self._slots.acquire()
        loop = asyncio.get_running_loop()
        job: concurrent.futures.Future[T] = concurrent.futures.Future()

        def free(_job: object) -> None:
            with contextlib.suppress(RuntimeError):  # Flower has ended meanwhile
                loop.call_soon_threadsafe(self._slots.release)

        job.add_done_callback(free)
        # A thread of an executor would keep Flower from ending while its database does not answer.
        threading.Thread(
            target=_carry_out, args=(job, work), name="dlq-flower", daemon=True
        ).start()
        return await asyncio.wrap_future(job)


def _carry_out(job: concurrent.futures.Future[T], work: Callable[[], T]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - it is the caller's
        job.set_exception(error)
    else:
        job.set_result(result)


def look_at(future: asyncio.Future[Any]) -> None:
    """Take note of what nobody waits for any more; else asyncio complains that nobody did."""
    if not future.cancelled():
        future.exception()


@dataclass(frozen=True)
class _Kept:
    value: Any
    until: float


class Snapshots:
    """Aggregates that may be a few seconds old: each is asked for once, however many pages want it."""

    def __init__(self, calls: Calls, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._calls, self._monotonic = calls, monotonic
        self._kept: dict[Hashable, _Kept] = {}
        self._running: dict[Hashable, asyncio.Future[Any]] = {}

    async def get(self, key: Hashable, ttl_s: float, work: Callable[[], T]) -> T:
        """What ``work`` returned at most ``ttl_s`` seconds ago, or returns now.

        :raises NotYet: it took too long. What it comes to is kept for the next one to ask.
        """
        kept = self._kept.get(key)
        if kept is not None and kept.until > self._monotonic():
            value: T = kept.value
            return value
        if key not in self._running:
            started = self._calls.start(work)
            self._running[key] = started
            started.add_done_callback(lambda done: self._keep(key, ttl_s, done))
        return await self._calls.wait(self._running[key])

    def forget(self) -> None:
        """Ask anew from now on: something was changed."""
        self._kept.clear()

    def _keep(self, key: Hashable, ttl_s: float, done: asyncio.Future[Any]) -> None:
        del self._running[key]
        if done.cancelled() or done.exception() is not None:
            return
        self._kept.pop(key, None)
        self._kept[key] = _Kept(done.result(), self._monotonic() + ttl_s)
        while len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
