"""The app of ``proj_parking`` with receivers of Celery's signals, and a task for each way of a message."""

from celery import signals
from celery.exceptions import Reject
from proj import FIXED, say, unless_fixed
from proj_parking import app

from celery_dlq import DLQTask

#: Is there once a message was given back.
GIVEN_BACK = FIXED.with_name("given_back")

#: How each signal names its message.
IDS = {
    "before_task_publish": lambda sender, headers, **_: headers["id"],
    "after_task_publish": lambda sender, headers, **_: headers["id"],
    "task_received": lambda sender, request, **_: request.id,
    "task_prerun": lambda sender, task_id, **_: task_id,
    "task_postrun": lambda sender, task_id, **_: task_id,
    "task_retry": lambda sender, request, **_: request.id,
    "task_success": lambda sender, **_: sender.request.id,
    "task_failure": lambda sender, task_id, **_: task_id,
    "task_internal_error": lambda sender, task_id, **_: task_id,
    "task_revoked": lambda sender, request, **_: request.id,
    "task_unknown": lambda sender, id, **_: id,
    "task_rejected": lambda sender, message, **_: message.properties["correlation_id"],
}


def hear(name, find):
    def receive(sender=None, **given):
        say("signals", f"{find(sender, **given)} {name}")

    getattr(signals, name).connect(receive, weak=False)


for name, find in IDS.items():
    hear(name, find)


@app.task(base=DLQTask, name="proj.goes", bind=True, acks_late=True)
def goes(self, way):
    is_first = not self.request.retries
    if way == "retry" and is_first:
        raise ConnectionError("the bank is away")
    if way == "parked" and is_first:
        raise self.retry(exc=ConnectionError("the bank is away"), countdown=2)
    if way == "given back" and not GIVEN_BACK.exists():
        GIVEN_BACK.touch()
        raise Reject("not now", requeue=True)
    if way == "letter":
        unless_fixed(ValueError("no such order"))
