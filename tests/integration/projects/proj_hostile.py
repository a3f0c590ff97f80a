"""The app of ``proj`` with the tasks that hostile messages ask for. Each run notes which message it was."""

from billiard.einfo import ExceptionWithTraceback
from celery.exceptions import (
    Ignore,
    Reject,
    Retry,
    Terminated,
    TimeLimitExceeded,
    WorkerLostError,
)
from proj import app, say

from celery_dlq import DLQTask


def number_of(request):
    """The number that the sender gave to the message, from the part in which it survived."""
    return (request.properties or {}).get("type") or (request.headers or {}).get("x-number")


@app.task(base=DLQTask, bind=True, typing=False)
def early(self, *args, **kwargs):
    say("done", number_of(self.request))


@app.task(base=DLQTask, bind=True, typing=False, acks_late=True)
def late(self, *args, **kwargs):
    say("done", number_of(self.request))


@app.task(base=DLQTask, bind=True, typing=False)
def fails(self, *args, **kwargs):
    raise ValueError("wrong arguments")


@app.task(base=DLQTask, bind=True, typing=False, acks_late=True)
def fails_late(self, *args, **kwargs):
    raise ValueError("wrong arguments")


@app.task(base=DLQTask, bind=True, typing=False)
def exhausted(self, *args, **kwargs):
    raise ConnectionError("the bank is down")


@app.task(base=DLQTask, bind=True, typing=False)
def asks_again(self, *args, **kwargs):
    raise self.retry(countdown=0)


class Liar(Exception):
    """Claims to be of another class: one that changes what Celery does."""

    def __init__(self, poses_as):
        super().__init__(poses_as)

    @property
    def __class__(self):
        return POSES[self.args[0] % len(POSES)]


POSES = (
    KeyboardInterrupt, SystemExit, MemoryError, Retry, Ignore, Reject, WorkerLostError, Terminated,
    TimeLimitExceeded, ExceptionWithTraceback,
)  # fmt: skip


@app.task(base=DLQTask, bind=True, typing=False)
def lies(self, *args, **kwargs):
    raise Liar(int(number_of(self.request)))


@app.task(base=DLQTask, bind=True, typing=False, acks_late=True)
def lies_late(self, *args, **kwargs):
    raise Liar(int(number_of(self.request)))


@app.task
def plain(*args, **kwargs):
    """On Celery's own base class."""
    say("done", plain.request.properties.get("type"))
