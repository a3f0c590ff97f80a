"""Measures how fast several processes carry one redrive together, as workers do: with plain messages, and
with a function that takes a millisecond for each message, as if it asked another service.

Run as a program, it is one of these processes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import partial
from typing import Any

from celery import Celery

from benchmarks.redrive import LETTERS, fresh_queue, letter_for
from benchmarks.rounds import compare
from benchmarks.services import BROKER, fresh_postgres
from celery_dlq import DeadLetterQueue, DLQTask, Filter
from celery_dlq.model.operation import Guard, OperationState, Orders, Pacing, Repair
from celery_dlq.model.states import State
from celery_dlq.view.text import counted

ROUNDS, PROCESSES = 3, (1, 2, 4)
#: Seconds that the function takes.
SLOW_S = 0.001


def run() -> None:
    """Print the letters per second with one, two and four processes."""
    for kind, repair, letters in (
        ("plain", Repair(), LETTERS),
        ("1 ms each", Repair(transform=f"{__name__}:slow"), LETTERS // 4),
    ):
        with fresh_postgres() as store_url:
            measure = partial(_carry, BROKER, store_url, letters, repair)
            ways = {
                counted(number, "process", "processes"): partial(measure, number)
                for number in PROCESSES
            }
            compare(
                f"redrive of {letters} letters of 2 kB, {kind}, Redis + PostgreSQL", ways,
                rounds=ROUNDS, show=lambda rate: f"{rate:.0f} letters/s",
            )  # fmt: skip


def slow(
    args: list[Any], kwargs: Mapping[str, Any], headers: Mapping[str, Any]
) -> tuple[list[Any], Mapping[str, Any], Mapping[str, Any]]:
    """Changes nothing, after a millisecond."""
    time.sleep(SLOW_S)
    return args, kwargs, headers


def _carry(broker: str, store_url: str, letters: int, repair: Repair, number: int) -> float:
    """Letters per second of an operation with this many processes."""
    with fresh_queue(broker, letters) as (app, queue):
        dlq = _queue_of(app, store_url)
        for start in range(0, letters, 1_000):
            dlq.store.letters.save([letter_for(queue) for _ in range(min(1_000, letters - start))])
        # No worker runs here whose outcomes a guard could wait for.
        orders = Orders(
            pacing=Pacing(processes=number), guard=Guard(enabled=False), repair=repair
        )  # fmt: skip
        made = dlq.redrive(Filter(queue=queue), who="bench", orders=orders, detach=True)
        _run(broker, store_url, made.id, number)
        done = dlq.operation(made.id)
        assert (done.state, done.counts.out) == (OperationState.DONE, letters), done
        assert done.started_at is not None
        assert done.ended_at is not None
        dlq.store.closing.discard(
            Filter(queue=queue, states=frozenset({State.REDRIVEN})),
            who="bench", why="done", now=datetime.now(timezone.utc),
        )  # fmt: skip
        dlq.store.close()
    # Without the start and the end of the processes.
    return letters / (done.ended_at - done.started_at).total_seconds()


def _run(broker: str, store_url: str, operation_id: str, number: int) -> None:
    """Run the processes, which begin when all are ready."""
    command = [sys.executable, "-m", __name__, broker, store_url, operation_id]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(number)
    ]
    for process in started:
        assert process.stdout is not None
        process.stdout.readline()
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    statuses = [process.wait() for process in started]
    assert not any(statuses), statuses


def _queue_of(app: Celery, store_url: str) -> DeadLetterQueue:
    app.conf.dlq_store_url = store_url
    app.task(_charge, name="bench.charge", base=DLQTask, shared=False)
    return DeadLetterQueue.of(app)


def _charge(order: object) -> None: ...


def _be_a_process(broker: str, store_url: str, operation_id: str) -> None:
    app = Celery("bench", broker=broker, set_as_current=False)
    redrives = _queue_of(app, store_url).redrives
    redrives.get(operation_id)  # connects
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    redrives.carry_on(operation_id, lambda: False)


if __name__ == "__main__":
    _be_a_process(*sys.argv[1:])
