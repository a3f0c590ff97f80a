"""The app of ``proj`` with a task that says that it runs, and then runs for as long as the test holds it."""

import time

from proj import FIXED, app, say, unless_fixed

from celery_dlq import DLQTask

HOLD = FIXED.with_name("hold")


@app.task(base=DLQTask, name="proj.held", acks_late=True)
def held(x):
    say("runs", x)
    unless_fixed(ValueError(f"bad currency {x}"))
    while HOLD.exists():
        time.sleep(0.02)
