"""The cost for tasks that succeed, end to end: no-op tasks per second through prefork workers on Redis,
from a full queue until it is empty."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import tempfile
import time
from functools import partial
from pathlib import Path

import redis

from benchmarks.rounds import measure, report
from benchmarks.services import BROKER
from benchmarks.worker import Way, new_queue, running, send, wait
from celery_dlq.store.sql import SQLStore

#: Each set of rounds has workers of its own, because a process keeps its memory layout. Many short
#: rounds rather than few long ones, so that other work of the machine affects both of a pair.
SETS, ROUNDS, TASKS = 10, 30, 250
#: Rounds before those that count.
WARM_UP = 3

#: The variants, in addition to ``acks_late``: whether there is a store, and a brake's failures.
WAYS = {
    "Task": (False, 0),
    "Task again": (False, 0),
    "DLQTask": (True, 0),
    "DLQTask with a brake": (True, 100),
}


def run() -> dict[str, float]:
    """Median throughput of each way, as a ratio to Celery's base class with the same acks_late."""
    ratios = {}
    for name, late in (("early", False), ("late", True)):
        ratios |= {f"{way}, {name}": ratio for way, ratio in _run(name, late).items()}
    return ratios


def _run(name: str, late: bool) -> dict[str, float]:
    title = f"succeeding tasks, {name} acknowledgement, prefork -c 2 on Redis, {TASKS} at a time"
    sets = [_measure_set(late) for _ in range(SETS)]
    return report(title, sets, show=lambda rate: f"{rate:.0f} tasks/s")


def _measure_set(late: bool) -> dict[str, list[float]]:
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        client = stack.enter_context(redis.Redis.from_url(BROKER))
        staged = new_queue()
        stack.callback(client.delete, staged)
        send("bench.succeed", TASKS, staged)
        store = f"sqlite:///{directory}/store.sqlite3"
        _make_store(store)
        # Every one with the same, so that none is lucky with its tables of names.
        seed = str(random.randrange(1 << 32))
        workers = {}
        for name, (has_store, failures) in random.sample(list(WAYS.items()), len(WAYS)):
            way = Way(
                store if has_store else "", acks_late=late, brake_failures=failures, hash_seed=seed
            )
            queue = new_queue()
            workers[name] = queue, stack.enter_context(running(way, queue, directory))
        rates = {name: partial(_rate, client, staged, workers[name][0]) for name in WAYS}
        measure(rates, WARM_UP)  # the workers start first
        for _, pid in workers.values():
            _pin(pid)
            stack.callback(os.kill, pid, signal.SIGTERM)  # so that they end side by side
        return measure(rates, ROUNDS)


def _make_store(url: str) -> None:
    """As a rule a worker finds the tables there: it is not what makes them."""
    store = SQLStore(url)
    store.check_schema()
    store.close()


def _rate(client: redis.Redis, staged: str, queue: str) -> float:
    """Tasks per second; workers that wait meanwhile cost next to nothing."""
    client.copy(staged, f"{queue}-next")
    began = time.perf_counter()
    client.rename(f"{queue}-next", queue)  # the whole queue at once
    wait(lambda: not client.llen(queue))
    return TASKS / (time.perf_counter() - began)


def _pin(worker: int) -> None:
    """Give the worker's parent a processor, and its children the others, so that the scheduler does not
    affect the comparison."""
    first, *others = sorted(os.sched_getaffinity(0))
    for task in Path(f"/proc/{worker}/task").iterdir():
        os.sched_setaffinity(int(task.name), {first})
    for child in _children(worker):
        os.sched_setaffinity(child, others or {first})


def _children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name of the program comes second, in parentheses, and may hold anything.
            _state, parent, *_ = path.read_text().rpartition(")")[2].split()
            if int(parent) == pid:
                found.append(int(path.parent.name))
    return found
