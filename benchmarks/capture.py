"""What a task that fails pays: failing tasks per second through a prefork worker on Redis, from the
first one that ran until the last one ended; with a letter, until the last letter is in the store."""

from __future__ import annotations

import tempfile
import time
from functools import partial

import redis

from benchmarks.rounds import compare
from benchmarks.services import BROKER, fresh_postgres
from benchmarks.worker import Way, new_queue, running, send, wait
from celery_dlq import Filter
from celery_dlq.store.sql import SQLStore

ROUNDS, TASKS, WARM_UP = 5, 3_000, 200
PAYLOAD = {"items": ["x" * 100] * 20}


def run() -> dict[str, float]:
    """Median throughput of each way, as a ratio to plain Celery failing the same tasks."""
    with tempfile.TemporaryDirectory() as directory, fresh_postgres() as postgres:
        stores = {
            "plain Celery": "",
            "SQLite": f"sqlite:///{directory}/store.sqlite3",
            "PostgreSQL": postgres,
        }
        ways = {name: partial(_measure, url, directory) for name, url in stores.items()}
        return compare(
            f"failing tasks, prefork -c 2 on Redis, {TASKS} at a time",
            ways, rounds=ROUNDS, show=lambda rate: f"{rate:.0f} tasks/s",
        )  # fmt: skip


def _measure(store_url: str, directory: str) -> float:
    queue = new_queue()
    store = SQLStore(store_url) if store_url else None
    send("bench.fail", TASKS, queue, PAYLOAD)
    with redis.Redis.from_url(BROKER) as client, running(Way(store_url), queue, directory):
        wait(lambda: int(client.get(f"{queue}-done") or 0) >= WARM_UP)
        began, done = time.perf_counter(), int(client.get(f"{queue}-done") or 0)
        wait(lambda: int(client.get(f"{queue}-done") or 0) >= TASKS)
        if store is not None:
            wait(lambda: store.count(Filter(queue=queue)) >= TASKS)
            store.close()
        return (TASKS - done) / (time.perf_counter() - began)
