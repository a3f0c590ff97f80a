"""The app of ``proj_parking`` with tasks that send messages after they were told to continue."""

from proj import app, say, wait_until_there
from proj_parking import waits

from celery_dlq import DLQTask


@app.task(base=DLQTask, name="proj.sends", bind=True)
def sends(self, x, how):
    """Waits for a file named ``continue`` in its first run."""
    return send(self, x, how)


@app.task(base=DLQTask, name="proj.sends_late", bind=True, acks_late=True)
def sends_late(self, x, how):
    return send(self, x, how)


def send(task, x, how):
    say("runs", f"{x} {task.request.retries}")
    if task.request.retries:
        return x
    say("waiting", x)
    wait_until_there("continue")
    if how == "fails":
        raise ConnectionError("the bank is away")
    if how == "retries":
        raise task.retry(exc=ConnectionError("the bank is away"), countdown=0)
    if how == "is replaced":
        return task.replace(waits.s(f"{x}, replaced", 0.0, 0))
    if how == "sends":
        app.send_task("proj.waits", (f"{x}, sent", 0.0, 0))
    return f"{x}, linked"
