"""The memory of a worker with many tasks in a long backoff, on Redis with a visibility timeout far
shorter than the wait; and whether each task runs once."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import redis
from celery import Celery

from benchmarks.services import BROKER, fresh_postgres
from benchmarks.worker import Way, new_queue, running, send, wait
from celery_dlq import DeadLetterQueue, Filter
from celery_dlq.model.states import State

TASKS = int(os.environ.get("BENCH_PARKED", "20000"))
WARM_UP = 500
VISIBILITY_S = 10
#: Seconds of the wait: far beyond what the broker holds.
WAIT_S = 3600

_PARKED = Filter(states=frozenset({State.PARKED}))


def run() -> dict[str, float]:
    """Growth of the worker's memory in MB, by way."""
    print(
        f"{TASKS:,} tasks that wait {WAIT_S} s, Redis hands out again after {VISIBILITY_S} s, prefork -c 2"
    )
    with fresh_postgres() as store_url, tempfile.TemporaryDirectory() as directory:
        plain = _in_memory(directory)
        parked = _in_the_store(store_url, directory)
    return {"celery": plain, "parked": parked}


def _in_memory(directory: str) -> float:
    """Plain Celery. Its messages are held by the worker, so that Redis would hand them out again: here it
    is left an hour."""
    queue = new_queue()
    with redis.Redis.from_url(BROKER) as client, running(Way(), queue, directory) as pid:
        before = _warm_up(queue, pid, lambda: client.hlen(f"{queue}-runs"))
        send("bench.back_off", TASKS, queue, WAIT_S)
        wait(lambda: client.hlen(f"{queue}-runs") == TASKS + WARM_UP and not client.llen(queue))
        growth = _memory_mb(pid) - before
        print(f"  Task        memory of the worker grew by {growth:6.1f} MB")
    _clean(queue)
    return growth


def _in_the_store(store_url: str, directory: str) -> float:
    queue, way = new_queue(), Way(store_url, visibility_s=VISIBILITY_S)
    app = Celery("operator", broker=BROKER, set_as_current=False)
    app.conf.dlq_store_url = store_url
    dlq = DeadLetterQueue.of(app)
    with redis.Redis.from_url(BROKER) as client, running(way, queue, directory) as pid:
        before = _warm_up(queue, pid, lambda: dlq.store.counts.letters(_PARKED))
        peak = [before]

        def all_parked() -> bool:
            peak.append(_memory_mb(pid))
            return dlq.store.counts.letters(_PARKED) == TASKS + WARM_UP

        send("bench.back_off", TASKS, queue, WAIT_S)
        wait(all_parked, every_s=0.5)
        parked_mb = max(peak) - before
        dlq.unpark(Filter(), who="benchmark")

        def all_ran() -> bool:
            peak.append(_memory_mb(pid))
            return bool(client.hlen(f"{queue}-runs") == 2 * (TASKS + WARM_UP))

        wait(all_ran, every_s=0.5)
        wait(lambda: not client.llen(queue))
        times = Counter(client.hvals(f"{queue}-runs"))
        print(
            f"  DLQTask     memory of the worker grew by {parked_mb:6.1f} MB while they were parked"
        )
        print(f"              and by {max(peak) - before:6.1f} MB at most until all had run")
        print(f"              runs: {dict(times)} (how often: of how many runs, two for each task)")
    dlq.store.close()
    app.close()
    _clean(queue)
    return parked_mb


def _warm_up(queue: str, pid: int, done: Callable[[], int]) -> float:
    send("bench.back_off", WARM_UP, queue, WAIT_S, "warm")
    wait(lambda: done() == WARM_UP)
    return _memory_mb(pid)


def _memory_mb(pid: int) -> float:
    """What the worker and its processes take, shared pages counted once."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(_pss_kb(process) for process in (str(pid), *children)) / 1024


def _pss_kb(pid: str) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def _clean(queue: str) -> None:
    with redis.Redis.from_url(BROKER) as client:
        client.delete(f"{queue}-runs")
