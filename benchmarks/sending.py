"""The cost of ``dlq_unsent`` while all is well: what ``delay()`` takes for a message."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from celery import Celery, Task

from benchmarks.rounds import measure, report
from benchmarks.services import BROKER, RABBITMQ
from celery_dlq import DeadLetterQueue, DLQTask

ROUNDS, MESSAGES = 400, 25

#: Clocks in nanoseconds.
CLOCKS: Mapping[str, Callable[[], int]] = {
    "of a processor": time.process_time_ns,
    "until the broker has the message": time.perf_counter_ns,
}


def run() -> dict[str, float]:
    """Microseconds for a message, as a ratio to plain Celery. On RabbitMQ, plain Celery has its messages
    confirmed: otherwise, their sender does not learn whether they were taken."""
    ratios: dict[str, float] = {}
    for broker, ways in (("Redis", _on_redis()), ("RabbitMQ", _on_rabbitmq())):
        for clock, now in CLOCKS.items():
            with contextlib.ExitStack() as stack:
                tasks = {name: stack.enter_context(way) for name, way in ways().items()}
                timed = {name: partial(_us, task, now) for name, task in tasks.items()}
                found = report(
                    f"delay() on {broker}, us {clock}",
                    [measure(timed, ROUNDS)], show=lambda us: f"{us:,.0f} us", digits=3,
                )  # fmt: skip
            ratios |= {f"{broker}, {way}, {clock}": ratio for way, ratio in found.items()}
    return ratios


def _on_redis() -> Callable[[], Mapping[str, contextlib.AbstractContextManager[Any]]]:
    return lambda: {
        "Task": _sending(BROKER),
        "Task again": _sending(BROKER),
        "DLQTask": _sending(BROKER, base=DLQTask),
        "DLQTask, dlq_unsent": _sending(BROKER, base=DLQTask, dlq_unsent="store"),
    }


def _on_rabbitmq() -> Callable[[], Mapping[str, contextlib.AbstractContextManager[Any]]]:
    confirmed = partial(_sending, RABBITMQ, confirm_publish=True)
    return lambda: {
        "Task, confirmed": confirmed(),
        "Task, confirmed, again": confirmed(),
        "DLQTask, confirmed": confirmed(base=DLQTask),
        "DLQTask, dlq_unsent": _sending(RABBITMQ, base=DLQTask, dlq_unsent="store"),
        "Task, not confirmed": _sending(RABBITMQ),
    }


@contextlib.contextmanager
def _sending(
    broker: str, *, base: type[Task] = Task, confirm_publish: bool = False, **settings: object
) -> Iterator[Any]:
    """A task of an app with a queue of its own."""
    app = Celery("bench", broker=broker, set_as_current=False)
    queue = f"bench-{uuid.uuid4().hex[:12]}"
    app.conf.update(task_default_queue=queue, task_ignore_result=True, **settings)
    # kombu's pools give equal connections to all apps, and a connection keeps its limits and confirms.
    app.conf.broker_transport_options = (
        {"unacked_key": queue}
        if broker.startswith("redis")
        else {"confirm_publish": confirm_publish, "client_properties": {"product": queue}}
    )
    if base is not Task:
        DeadLetterQueue.of(app)
    task = app.task(_nothing, name="bench.nothing", base=base, shared=False)
    task.delay()  # connects, and declares the queue
    try:
        yield task
    finally:
        with app.connection_for_write() as connection:
            connection.default_channel.queue_delete(queue)


def _nothing() -> None: ...


def _us(task: Any, now: Callable[[], int]) -> float:
    began = now()
    for _ in range(MESSAGES):
        task.delay()
    return (now() - began) / MESSAGES / 1_000
