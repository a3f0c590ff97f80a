"""Tasks that note when their body begins and when it has ended, for workers that are killed.

``PROJ_PLAIN`` makes them tasks of plain Celery. A worker with the pool's option ``PROJ_METRICS`` serves its
metrics, on a port that it writes to the file of that name.
"""

import os
import time
from pathlib import Path

from celery import Task, signals
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
def noted(number, seconds, fails=False):
    note("began", number)
    time.sleep(seconds)
    if fails:
        raise ValueError(f"number {number} is meant to fail")
    note("ended", number)


@app.task(base=DLQTask, name="proj.noted_until", ignore_result=True)
def noted_until(number, name):
    """Runs until there is a file of that name."""
    note("began", number)
    while not FIXED.with_name(name).exists():
        time.sleep(0.02)
    note("ended", number)


if "PROJ_METRICS" in os.environ:
    from prometheus_client import start_http_server

    @signals.worker_ready.connect(weak=False)
    def serve(**_):
        server, _thread = start_http_server(0, addr="127.0.0.1")
        Path(os.environ["PROJ_METRICS"]).write_text(str(server.server_port))
