"""What a task that succeeds pays: Celery's tracer running a no-op, with each base class."""

from __future__ import annotations

import random
import statistics
import time

from celery import Celery, Task
from celery.app.trace import build_tracer, setup_worker_optimizations

from celery_dlq import DLQTask

ROUNDS, CALLS = 150, 2_000
REQUEST = {"id": "1", "task": "noop", "root_id": "1", "retries": 0, "delivery_info": {}}


def run() -> dict[str, float]:
    """Median over interleaved rounds of the time per call, as a ratio to the plain base class."""
    tracers = _tracers()
    times: dict[str, list[float]] = {name: [] for name in tracers}
    for _ in range(ROUNDS):
        order = list(tracers)
        random.shuffle(order)
        for name in order:
            times[name].append(_time(tracers[name]))
    print(f"tracer, {ROUNDS} interleaved rounds of {CALLS} no-op tasks")
    ratios = {}
    for name, measured in times.items():
        pairs = zip(measured, times["Task"], strict=True)
        ratios[name] = statistics.median(own / plain for own, plain in pairs)
        print(f"  {name:24} {statistics.median(measured) * 1e6:7.2f} µs   ratio {ratios[name]:.3f}")
    return ratios


def _tracers() -> dict[str, object]:
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
    }
    app.finalize()
    setup_worker_optimizations(app)
    registered = {name: app.tasks[task.name] for name, task in tasks.items()}
    return {name: build_tracer(task.name, task, app=app) for name, task in registered.items()}


def _time(tracer: object) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        tracer("1", (), {}, REQUEST)  # type: ignore[operator]
    return (time.perf_counter() - start) / CALLS
