"""The app of ``proj`` with a task that notes under which copy of its message it runs."""

import os
import time

from proj import FIXED, app

from celery_dlq import DLQTask

RUNS, HOLD = FIXED.with_name("runs"), FIXED.with_name("hold")


@app.task(base=DLQTask, bind=True, name="proj.runs", acks_late=True, ignore_result=True)
def runs(self, number, seconds=0.0):
    # One call, so that a line is whole or not there.
    handle = os.open(RUNS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{number} {self.request.get('x-dlq-copy')}\n".encode())
    finally:
        os.close(handle)
    time.sleep(seconds)
    while HOLD.exists():
        time.sleep(0.02)
