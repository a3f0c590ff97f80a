"""What a task that fails pays: failing tasks per second through a prefork worker on Redis, from the
first one that ran until the last one ended; with a letter, until the last letter is in the store."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

import redis
from celery import Celery

from benchmarks.services import BROKER, fresh_postgres
from celery_dlq import Filter
from celery_dlq.store.sql import SQLStore

ROUNDS, TASKS, WARM_UP = 5, 3_000, 200
PAYLOAD = {"items": ["x" * 100] * 20}


def run() -> dict[str, float]:
    """Median throughput of each way, as a ratio to plain Celery failing the same tasks."""
    rates: dict[str, list[float]] = {"plain Celery": [], "SQLite": [], "PostgreSQL": []}
    with tempfile.TemporaryDirectory() as directory, fresh_postgres() as postgres:
        stores = {
            "plain Celery": "",
            "SQLite": f"sqlite:///{directory}/store.sqlite3",
            "PostgreSQL": postgres,
        }
        for _ in range(ROUNDS):
            order = list(stores)
            random.shuffle(order)
            for name in order:
                rates[name].append(_measure(stores[name], directory))
    print(f"failing tasks, prefork -c 2 on Redis, {ROUNDS} interleaved rounds of {TASKS}")
    ratios = {}
    for name, measured in rates.items():
        pairs = zip(measured, rates["plain Celery"], strict=True)
        ratios[name] = statistics.median(own / plain for own, plain in pairs)
        print(f"  {name:16} {statistics.median(measured):8.0f} tasks/s   ratio {ratios[name]:.2f}")
    return ratios


def _measure(store_url: str, directory: str) -> float:
    queue = f"bench-{uuid.uuid4().hex[:8]}"
    counter = redis.Redis.from_url(BROKER)
    _send(queue)
    environment = {
        **os.environ, "BENCH_BROKER": BROKER, "BENCH_QUEUE": queue, "BENCH_STORE": store_url,
    }  # fmt: skip
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "benchmarks.failing_app", "worker", "-c", "2",
         "-l", "CRITICAL", "-n", f"{queue}@%h", "--without-gossip", "--without-mingle"],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    store = SQLStore(store_url) if store_url else None
    try:
        _wait(lambda: int(counter.get(f"{queue}-done") or 0) >= WARM_UP)
        start, done = time.perf_counter(), int(counter.get(f"{queue}-done") or 0)
        _wait(lambda: int(counter.get(f"{queue}-done") or 0) >= TASKS)
        if store is not None:
            _wait(lambda: store.count(Filter(queue=queue)) >= TASKS)
        return (TASKS - done) / (time.perf_counter() - start)
    finally:
        worker.terminate()
        worker.wait()
        counter.delete(queue, f"{queue}-done")
        if store is not None:
            store.close()


def _send(queue: str) -> None:
    app = Celery("sender", broker=BROKER, set_as_current=False)
    with app.producer_or_acquire() as producer:
        for number in range(TASKS):
            app.send_task(
                "bench.fail", ({"id": number, **PAYLOAD},), queue=queue, producer=producer
            )
    app.close()


def _wait(ready: object) -> None:
    while not ready():  # type: ignore[operator]
        time.sleep(0.01)
