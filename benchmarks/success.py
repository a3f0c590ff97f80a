"""What tasks that succeed pay, end to end: no-op tasks per second through prefork workers on Redis,
from a full queue until it is empty."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable

import redis

from benchmarks.rounds import measure, report
from benchmarks.services import BROKER
from benchmarks.worker import Way, new_queue, running, send, wait

#: Each set of rounds has workers of its own: a process has some luck with its memory and its hashes, and
#: keeps it. Many short rounds rather than few long ones: what else the machine does meets both of a pair.
SETS, ROUNDS, TASKS = 6, 30, 250
#: Rounds before those that count.
WARM_UP = 3


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
        store = f"sqlite:///{directory}/store.sqlite3"
        ways = {
            "Task": Way(acks_late=late),
            "Task again": Way(acks_late=late),
            "DLQTask": Way(store, acks_late=late),
            "DLQTask with a brake": Way(store, acks_late=late, brake_failures=100),
        }
        staged = new_queue()
        stack.callback(client.delete, staged)
        send("bench.succeed", TASKS, staged)
        measures = {
            way: _measure(stack, client, staged, chosen, directory) for way, chosen in ways.items()
        }
        return measure(measures, ROUNDS)


def _measure(
    stack: contextlib.ExitStack, client: redis.Redis, staged: str, way: Way, directory: str
) -> Callable[[], float]:
    """Makes a worker that runs until the end of its set; workers that wait cost next to nothing."""
    queue = new_queue()
    stack.enter_context(running(way, queue, directory))

    def rate() -> float:
        client.copy(staged, f"{queue}-next")
        began = time.perf_counter()
        client.rename(f"{queue}-next", queue)  # the whole queue at once
        wait(lambda: not client.llen(queue), every_s=0.001)
        return TASKS / (time.perf_counter() - began)

    for _ in range(WARM_UP):  # the worker starts first
        rate()
    return rate
