"""The cost for a task that fails: failing tasks per second through prefork workers on Redis, from a
full queue until the last one ended; with a letter, until the last letter is in the store."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Mapping

import redis

from benchmarks.rounds import compare
from benchmarks.services import BROKER, fresh_postgres
from benchmarks.worker import Way, new_queue, running, send, wait
from celery_dlq import Filter
from celery_dlq.store.sql import SQLStore

ROUNDS, TASKS = 10, 3_000
PAYLOAD = {"items": ["x" * 100] * 20}


def run() -> dict[str, float]:
    """Median throughput of each way, as a ratio to plain Celery failing the same tasks."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        client = stack.enter_context(redis.Redis.from_url(BROKER))
        stores = {
            "plain Celery": "",
            "plain Celery again": "",
            "SQLite": f"sqlite:///{directory}/store.sqlite3",
            "PostgreSQL": stack.enter_context(fresh_postgres()),
        }
        return compare(
            f"failing tasks, prefork -c 2 on Redis, {TASKS} at a time",
            {
                name: failing(stack, client, Way(url), directory, TASKS, PAYLOAD)
                for name, url in stores.items()
            },
            rounds=ROUNDS, show=lambda rate: f"{rate:.0f} tasks/s",
        )  # fmt: skip


def failing(
    stack: contextlib.ExitStack,
    client: redis.Redis,
    way: Way,
    directory: str,
    tasks: int,
    payload: Mapping[str, object],
    lines: int = 0,
) -> Callable[[], float]:
    """Makes a worker that runs until the end of all rounds; workers that wait cost next to nothing. Returns a
    function that measures how many tasks with this argument fail per second.

    :param lines: that each task logs.
    """
    queue, store_url = new_queue(), way.store_url
    stack.enter_context(running(way, queue, directory))
    store = stack.enter_context(contextlib.closing(SQLStore(store_url))) if store_url else None

    def measure() -> float:
        client.delete(f"{queue}-done")
        known = store.counts.letters(Filter()) if store is not None else 0
        # Each time new messages: a message that failed before has its letter already.
        send("bench.fail", tasks, f"{queue}-next", payload, lines)
        began = time.perf_counter()
        client.rename(f"{queue}-next", queue)  # the whole queue at once
        wait(lambda: int(client.get(f"{queue}-done") or 0) >= tasks)
        if store is not None:
            wait(lambda: store.counts.letters(Filter()) >= known + tasks)
        return tasks / (time.perf_counter() - began)

    measure()  # the worker starts, and warms up
    return measure
