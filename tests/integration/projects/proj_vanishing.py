"""The app of ``proj`` with a task that notes under which copy of its message it runs, and quick leases.

``PROJ_VANISHED_AFTER_S`` sets when a message has vanished, instead of twice the visibility timeout.
"""

import os
import time
from dataclasses import replace

import quick_looks  # noqa: F401
from proj import FIXED, app

from celery_dlq import DeadLetterQueue, DLQTask

dlq = DeadLetterQueue.of(app)
if "PROJ_VANISHED_AFTER_S" in os.environ:
    dlq.hold = replace(dlq.hold, vanished_after_s=float(os.environ["PROJ_VANISHED_AFTER_S"]))

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
