"""The cost for a task that succeeds: Celery's tracer running a no-op, with each base class."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from celery import Celery, Task
from celery.app.trace import build_tracer, setup_worker_optimizations

from benchmarks.rounds import compare
from celery_dlq import DLQTask

ROUNDS, CALLS = 150, 2_000
REQUEST = {"id": "1", "task": "noop", "root_id": "1", "retries": 0, "delivery_info": {}}


def run() -> dict[str, float]:
    """Median time per call, as a ratio to the plain base class."""
    ways = {name: partial(_time, tracer) for name, tracer in _tracers().items()}
    return compare(
        f"tracer, {CALLS} no-op tasks at a time",
        ways, rounds=ROUNDS, show=lambda seconds: f"{seconds * 1e6:.2f} µs", digits=3,
    )  # fmt: skip


def _tracers() -> dict[str, Callable[..., Any]]:
    app = Celery("bench", broker="memory://", set_as_current=False)
    app.conf.task_ignore_result = True

    def noop() -> None: ...

    tasks = {
        "Task": app.task(noop, name="plain", shared=False),
        "Task again": app.task(noop, name="again", shared=False),
        "Task, autoretry_for": app.task(
            noop, name="auto", shared=False, base=Task, autoretry_for=(KeyError,)
        ),
        "DLQTask": app.task(noop, name="dlq", shared=False, base=DLQTask),
        "DLQTask with a retry budget": app.task(
            noop, name="thrifty", shared=False, base=DLQTask, dlq_retry_budget=0.2
        ),
    }
    app.finalize()
    setup_worker_optimizations(app)
    return {name: _tracer(app, app.tasks[task.name]) for name, task in tasks.items()}


def _tracer(app: Celery, task: Any) -> Callable[..., Any]:
    # As a worker does, which runs what the task makes of its tracer.
    task.__trace__ = build_tracer(task.name, task, app=app)
    tracer: Callable[..., Any] = task.__trace__
    return tracer


def _time(tracer: Callable[..., Any]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        tracer("1", (), {}, REQUEST)
    return (time.perf_counter() - start) / CALLS
