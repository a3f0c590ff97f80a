"""Workers whose tasks fail at a steady rate: each failure is saved as a worker's writing thread saves it, and
the time until it is stored is measured."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from typing import Any

from benchmarks.letters import shop_letter
from celery_dlq.base.sealing import Keyring
from celery_dlq.errors import StoreError
from celery_dlq.store.sql import SQLStore

#: Workers, which have a connection each.
WORKERS = 5


@dataclass
class Failures:
    """The failures of one run; filled at its end."""

    #: When each failure happened, on the monotonic clock, and the seconds until it was stored.
    times: list[tuple[float, float]]
    #: Failures that the store did not take, which a worker would write to its spool.
    refused: int = 0

    def latencies(self, spans: list[tuple[float, float]]) -> list[float]:
        """The seconds of the failures within ``spans``."""
        return [took for at, took in self.times if any(a <= at < b for a, b in spans)]


@contextlib.contextmanager
def failing(store_url: str, rate: float, ring: Keyring | None = None) -> Iterator[Failures]:
    """Tasks that fail, ``rate`` in a second, in a process of their own until the ``with`` block ends."""
    spawning = multiprocessing.get_context("spawn")
    over, results = spawning.Event(), spawning.Queue()
    process = spawning.Process(target=_fail, args=(store_url, rate, ring, over, results))
    process.start()
    failures = Failures([])
    try:
        yield failures
    finally:
        over.set()
        failures.times, failures.refused = results.get()
        process.join()


def _fail(
    store_url: str, rate: float, ring: Keyring | None, over: Event, results: Queue[Any]
) -> None:
    workers = [_Worker(store_url, WORKERS / rate, number, ring) for number in range(WORKERS)]
    threads = [threading.Thread(target=worker.run, args=(over,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times = [one for worker in workers for one in worker.times]
    results.put((sorted(times), sum(worker.refused for worker in workers)))


class _Worker:
    """Fails every ``every_s`` seconds, however long the store takes; what has failed meanwhile is saved
    together."""

    def __init__(self, store_url: str, every_s: float, number: int, ring: Keyring | None) -> None:
        self.times: list[tuple[float, float]] = []
        self.refused = 0
        self._store, self._every_s = SQLStore(store_url, timeout=30, ring=ring), every_s
        self._drawn, self._due = random.Random(), time.monotonic() + every_s * number / WORKERS

    def run(self, over: Event) -> None:
        while not over.wait(max(0.0, self._due - time.monotonic())):
            failed = self._failed()
            letters = [shop_letter(self._drawn, datetime.now(timezone.utc)) for _ in failed]
            try:
                self._store.letters.save(letters)
            except StoreError:
                self.refused += len(letters)
                continue
            stored = time.monotonic()
            self.times += [(at, stored - at) for at in failed]
        self._store.close()

    def _failed(self) -> list[float]:
        """When the tasks failed whose letters are not stored yet."""
        failed, now = [], time.monotonic()
        while self._due <= now:
            failed.append(self._due)
            self._due += self._every_s
        return failed
