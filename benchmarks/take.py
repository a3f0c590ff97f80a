"""Taking a message from Redis in one step, as ``DLQTask`` does, beside plain Celery, which takes two:
throughput, the time until an idle worker has a message, and what a worker costs while it is idle."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from functools import partial
from pathlib import Path

import redis
from celery import Celery

from benchmarks.rounds import compare, report
from benchmarks.services import BROKER
from benchmarks.side_by_side import throughput
from benchmarks.worker import Way, new_queue, running

SETS, ROUNDS, TASKS = 4, 30, 250
#: Messages to an idle worker: one each tenth of a second or so, not in step with its waits.
MESSAGES, PAUSE_S = 200, 0.107
#: Seconds for which an idle worker is looked at.
IDLE_S = 20


def run() -> dict[str, float]:
    """Each measure of a worker with ``DLQTask``, as a ratio to one with ``Task``."""
    sets = [throughput(_ways, TASKS, ROUNDS) for _ in range(SETS)]
    title = f"taking messages, late acknowledgement, prefork -c 2 on Redis, {TASKS} at a time"
    rates = report(title, sets, show=lambda rate: f"{rate:.0f} tasks/s")
    with contextlib.ExitStack() as stack:
        idle = _Idle(stack)
        delays = compare(
            "time until an idle worker's task has run", idle.delays(), rounds=MESSAGES,
            show=lambda seconds: f"{1000 * seconds:.2f} ms",
        )  # fmt: skip
        idle.report_costs()
    return {f"{name}, throughput": rate for name, rate in rates.items()} | delays


def _ways(store: str) -> dict[str, Way]:
    return {
        "Task": Way(acks_late=True),
        "Task again": Way(acks_late=True),
        "DLQTask": Way(store, acks_late=True),
    }


class _Idle:
    """Workers that wait for messages."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        self._client = stack.enter_context(redis.Redis.from_url(BROKER))
        self._app = stack.enter_context(Celery("sender", broker=BROKER, set_as_current=False))
        self._workers: dict[str, tuple[str, int]] = {}
        for name in _ways(""):
            queue = new_queue()
            # Each with a store of its own, because one worker of a store does the upkeep for all.
            way = _ways(f"sqlite:///{directory}/{queue}.sqlite3")[name]
            self._workers[name] = queue, stack.enter_context(running(way, queue, directory))

    def delays(self) -> dict[str, partial[float]]:
        first = {name: partial(self._delay, queue, 0) for name, (queue, _) in self._workers.items()}
        last = {
            f"{name}, low priority": partial(self._delay, queue, 9)
            for name, (queue, _) in self._workers.items()
        }
        return first | last

    def _delay(self, queue: str, priority: int) -> float:
        """Seconds from the sending of a message until its task has run."""
        time.sleep(PAUSE_S)
        began = time.perf_counter()
        self._app.send_task("bench.answer", (0,), queue=queue, priority=priority)
        assert self._client.blpop(f"{queue}-done", timeout=60)
        return time.perf_counter() - began

    def report_costs(self) -> None:
        """Print what each worker uses of a processor while it waits."""
        before = {name: _used(pid) for name, (_, pid) in self._workers.items()}
        time.sleep(IDLE_S)
        for name, (_, pid) in self._workers.items():
            share = (_used(pid) - before[name]) / IDLE_S
            print(f"  {name:28} idle: {share:.2%} of a processor")


def _used(pid: int) -> float:
    """Seconds of a processor that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
