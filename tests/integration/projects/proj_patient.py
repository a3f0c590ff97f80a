"""The app of ``proj`` with a task that outlives the three killers of its worker."""

import time

from proj import FIXED, app, say, worker_pid

from celery_dlq import DLQTask

__all__ = ["app"]


@app.task(base=DLQTask, name="proj.patient", acks_late=True)
def patient(x):
    say("started", f"{x} {worker_pid()}")
    killed = FIXED.with_name("killed")
    while not killed.exists() or len(killed.read_text().splitlines()) < 3:
        time.sleep(0.02)
    say("done", x)
