"""Tasks that note when their body begins and when it has ended, for workers that are killed.

``PROJ_PLAIN`` makes them tasks of plain Celery.
"""

import os
import time

from celery import Task
from proj import FIXED, app

from celery_dlq import DLQTask

NOTES = FIXED.with_name("notes")


def note(what, number):
    """Append one line, in one call, so that a line is whole or not there."""
    handle = os.open(NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{what} {number} {time.time():.6f}\n".encode())
    finally:
        os.close(handle)


@app.task(
    base=Task if os.environ.get("PROJ_PLAIN") else DLQTask, name="proj.noted", ignore_result=True
)
def noted(number, seconds):
    note("began", number)
    time.sleep(seconds)
    note("ended", number)
