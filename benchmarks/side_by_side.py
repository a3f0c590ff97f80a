"""Workers side by side: tasks per second of each, from a full queue until it is empty."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import redis

from benchmarks.rounds import measure
from benchmarks.services import BROKER
from benchmarks.worker import Way, new_queue, running, send, wait
from celery_dlq.store.sql import SQLStore

#: Rounds before those that count.
WARM_UP = 3

#: Measures a round. Called with a client of Redis, the queue to copy, the worker's queue, its process id, and
#: the number of tasks.
Figure = Callable[[redis.Redis, str, str, int, int], float]


def rate(client: redis.Redis, staged: str, queue: str, _worker: int, tasks: int) -> float:
    """Tasks per second; the workers that wait cost next to nothing."""
    client.copy(staged, f"{queue}-next")
    began = time.perf_counter()
    client.rename(f"{queue}-next", queue)  # the whole queue at once
    wait(lambda: not client.llen(queue))
    return tasks / (time.perf_counter() - began)


def parents_us(client: redis.Redis, staged: str, queue: str, worker: int, tasks: int) -> float:
    """Microseconds of a processor that the worker's parent uses for a task."""
    before = _processor_ns(worker)
    rate(client, staged, queue, worker, tasks)
    time.sleep(0.05)  # until the last tasks have ended
    return (_processor_ns(worker) - before) / tasks / 1_000


def throughput(
    ways: Callable[[str], Mapping[str, Way]],
    tasks: int,
    rounds: int,
    *arguments: object,
    task: str = "bench.succeed",
    figure: Figure = rate,
) -> dict[str, list[float]]:
    """The figure of each of ``ways``, by round: usually tasks per second. All have new workers, which run
    side by side.

    :param ways: called with the URL of a store.
    :param tasks: tasks of a round.
    :param arguments: the arguments of each task after its number.
    :param task: the name of the task, which does nothing unless another one is named.
    """
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        client = stack.enter_context(redis.Redis.from_url(BROKER))
        staged = new_queue()
        stack.callback(client.delete, staged)
        send(task, tasks, staged, *arguments)
        store = f"sqlite:///{directory}/store.sqlite3"
        make_store(store)
        # The same for all, so that no worker is lucky with its tables of names.
        seed = str(random.randrange(1 << 32))
        workers, found = dict[str, tuple[str, int]](), ways(store)
        for name in random.sample(list(found), len(found)):
            queue, way = new_queue(), replace(found[name], hash_seed=seed)
            workers[name] = queue, stack.enter_context(running(way, queue, directory))
        figures = {name: partial(figure, client, staged, *workers[name], tasks) for name in found}
        measure(figures, WARM_UP)  # the workers start first
        for _, pid in workers.values():
            _pin(pid)
            stack.callback(os.kill, pid, signal.SIGTERM)  # so that they end side by side
        return measure(figures, rounds)


def make_store(url: str) -> None:
    """Make the tables, which a worker usually finds there."""
    store = SQLStore(url)
    store.check_schema()
    store.close()


def _processor_ns(pid: int) -> int:
    """Nanoseconds that the threads of a process have run."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads)


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
