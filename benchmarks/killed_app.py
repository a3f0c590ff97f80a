"""The app of the benchmark ``killed``, which notes when its tasks are received, begin and end."""

from __future__ import annotations

import os
import time
from typing import Any

from celery import Task, signals

from benchmarks.app import BASE, app

_NOTES = os.environ["BENCH_NOTES"]


def _note(what: str, task_id: str, worker: str) -> None:
    """Append one line, in one call, so that a line is whole or not there."""
    handle = os.open(_NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{what} {task_id} {worker} {time.time():.6f}\n".encode())
    finally:
        os.close(handle)


@app.task(base=BASE, name="bench.noted", bind=True, dlq_idempotent=True)
def noted(self: Task, seconds: float) -> None:
    _note("began", self.request.id, self.request.hostname)
    time.sleep(seconds)
    _note("ended", self.request.id, self.request.hostname)


@signals.task_received.connect(weak=False)
def _received(sender: Any, request: Any, **_: object) -> None:
    _note("received", request.id, sender.hostname)


if os.environ["BENCH_VISIBILITY"]:
    # Without the faster restoring that benchmarks.app sets with it.
    app.conf.broker_transport_options = {"visibility_timeout": int(os.environ["BENCH_VISIBILITY"])}

if os.environ["BENCH_STORE"]:
    from celery_dlq import AutoRedrive, DeadLetterQueue, Filter, Limits, Reason, Timetable

    app.conf.dlq_auto_redrive = [
        AutoRedrive(
            "lost",
            where=Filter(reason=Reason.LOST),
            after_s=0,
            when=Timetable(every_s=1),
            limits=Limits(per_letter=20, growth=1),
        )
    ]

    @DeadLetterQueue.of(app).on_dead_letter
    def _is_letter(letter: Any) -> None:
        _note("letter", letter.task_id, letter.reason.value)
