"""A prefork worker on Redis that runs the benchmarks' app."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import redis
from celery import Celery

from benchmarks.services import BROKER

ROOT = Path(__file__).parents[1]

#: Of workers whose letters are encrypted.
KEYS = {"bench": "YmVuY2gga2V5LCBiZW5jaCBrZXksIGJlbmNoIGtleSw="}


@dataclass(frozen=True)
class Way:
    """How the app's tasks are set up. Without a store they are on Celery's own base class."""

    store_url: str = ""
    acks_late: bool = False
    retry_budget: float | None = None
    breaker_failures: int = 0
    breaker_streak: int = 0
    recorder: bool = True
    visibility_s: int | None = None
    hash_seed: str = "random"
    search_values: int = 24
    log_lines: int = 50
    log_level: str = "CRITICAL"
    encrypted: bool = False


def environment_of(way: Way, queue: str) -> dict[str, str]:
    """The environment in which the app is set up in this way."""
    return {
        **os.environ, "PYTHONPATH": str(ROOT), "BENCH_BROKER": BROKER, "BENCH_QUEUE": queue,
        "BENCH_STORE": way.store_url, "BENCH_LATE": "1" if way.acks_late else "",
        "BENCH_STREAK": str(way.breaker_streak), "BENCH_BUDGET": json.dumps(way.retry_budget),
        "BENCH_BREAKER": str(way.breaker_failures), "BENCH_RECORDER": "1" if way.recorder else "",
        "BENCH_VALUES": str(way.search_values), "BENCH_LINES": str(way.log_lines),
        "BENCH_VISIBILITY": str(way.visibility_s or ""), "PYTHONHASHSEED": way.hash_seed,
        "BENCH_KEYS": json.dumps(KEYS if way.encrypted else None),
    }  # fmt: skip


@contextlib.contextmanager
def running(way: Way, queue: str, directory: str) -> Iterator[int]:
    """A worker on ``queue``, with two processes; its process id."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "benchmarks.app", "worker", "-c", "2",
         "-l", way.log_level, "-n", f"{queue}@%h", "--without-gossip", "--without-mingle"],
        env=environment_of(way, queue), cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield worker.pid
    finally:
        worker.terminate()
        worker.wait()
        with redis.Redis.from_url(BROKER) as client:
            client.delete(queue, f"{queue}-done")


def new_queue() -> str:
    """A unique name."""
    return f"bench-{uuid.uuid4().hex[:8]}"


def send(task: str, count: int, queue: str, *args: object) -> None:
    """``count`` messages of ``task``; the first argument of each is its number."""
    app = Celery("sender", broker=BROKER, set_as_current=False)
    with app.producer_or_acquire() as producer:
        for number in range(count):
            app.send_task(task, (number, *args), queue=queue, producer=producer)
    app.close()


def wait(ready: Callable[[], object], every_s: float = 0.005) -> None:
    """Return when ``ready`` is true."""
    while not ready():
        time.sleep(every_s)
