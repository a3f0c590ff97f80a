"""A web application that sends a task for each request, and the app of the workers that run them.

``PROJ_PLAIN`` makes it an app of plain Celery, which does not import the package. ``PROJ_DOUBT_S`` sets the
seconds for which a message in doubt waits.
"""

import json
import os
import time
from pathlib import Path

from celery import Celery, Task

app = Celery("proj", broker=os.environ["PROJ_BROKER"])
app.conf.update(
    task_default_queue=os.environ["PROJ_QUEUE"],
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    broker_transport_options=json.loads(os.environ["PROJ_TRANSPORT"]),
)
RUNS = Path(os.environ["PROJ_FIXED"]).with_name("runs")

if os.environ.get("PROJ_PLAIN"):
    base = Task
else:
    from celery_dlq import DLQTask as base

    app.conf.update(
        dlq_store_url=os.environ["PROJ_STORE"],
        dlq_spool_dir=os.environ["PROJ_SPOOL"],
        **json.loads(os.environ["PROJ_SETTINGS"]),
    )
    if "PROJ_DOUBT_S" in os.environ:
        from celery_dlq.store.rows import rows

        rows.DOUBT_S = float(os.environ["PROJ_DOUBT_S"])


@app.task(bind=True, base=base, name="proj.order")
def order(self, number):
    """Appends one line, in one call, so that a line is whole or not there."""
    request = self.request
    line = {
        "number": number,
        "at": time.time(),
        "redelivered": bool(request.delivery_info.get("redelivered")),
        "release": getattr(request, "x-dlq-release", ""),
    }
    handle = os.open(RUNS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, json.dumps(line).encode() + b"\n")
    finally:
        os.close(handle)


def application(environ, start_response):
    """Sends the task with the number of the query, if it has one; the answer says how long that took."""
    began, number = time.perf_counter(), environ["QUERY_STRING"]
    try:
        told = {"task_id": number and order.delay(int(number)).id}
        status = "200 OK"
    except Exception as error:
        told, status = {"error": repr(error)}, "500 Internal Server Error"
    told.update(pid=os.getpid(), seconds=time.perf_counter() - began)
    start_response(status, [("Content-Type", "application/json")])
    return [json.dumps(told).encode()]
