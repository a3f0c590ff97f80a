"""The app of ``proj`` with a task whose retry waits, quick leases, and a worker that can be killed in the
middle of a release.

``PROJ_KILL_AT`` names the instruction: ``taken``, ``publishing`` (after half of a batch), ``published``, or
``marked``. ``PROJ_PARK_AFTER_S`` may be less than the second that the setting allows.
"""

import os
import signal
from dataclasses import replace

from proj import FIXED, app, say

from celery_dlq import DeadLetterQueue, DLQTask
from celery_dlq.redrive.broker import amqp, publisher
from celery_dlq.store import tenure
from celery_dlq.upkeep import chores, parked, periodic

tenure.LEASE_S, tenure.TRY_S = 1.0, 0.2
periodic.TRY_S = chores.TRY_S = 0.2
chores.LOOK_S = 0.1
parked.HOLD_S = float(os.environ.get("PROJ_HOLD_S", "1.0"))

dlq = DeadLetterQueue.of(app)
if "PROJ_PARK_AFTER_S" in os.environ:
    dlq.hold = replace(dlq.hold, at_most_s=float(os.environ["PROJ_PARK_AFTER_S"]))

KILL_AT = os.environ.get("PROJ_KILL_AT", "")


def wait(task, x, seconds, times, ends):
    """Retries this many times, after this many seconds each."""
    say("runs", f"{x} {task.request.retries}")
    if task.request.retries < times:
        raise task.retry(exc=ConnectionError("the bank is away"), countdown=seconds)
    if ends == "badly" and not FIXED.exists():
        raise ValueError("and then it was the order")
    return x


@app.task(base=DLQTask, name="proj.waits", bind=True, max_retries=3)
def waits(self, x, seconds, times=1, ends="well"):
    return wait(self, x, seconds, times, ends)


@app.task(base=DLQTask, name="proj.waits_late", bind=True, max_retries=3, acks_late=True)
def waits_late(self, x, seconds, times=1, ends="well"):
    return wait(self, x, seconds, times, ends)


def killed_after(function):
    def call(*args, **kwargs):
        answer = function(*args, **kwargs)
        if answer or answer is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return call


def killed_half_way(function):
    done = []

    def call(*args, **options):
        function(*args, **options)
        done.append(args)
        if len(done) == int(os.environ["PROJ_HALF"]):
            os.kill(os.getpid(), signal.SIGKILL)

    return call


if KILL_AT == "taken":
    parked.as_sent = killed_after(parked.as_sent)
elif KILL_AT == "publishing":
    amqp.PORTION = 1  # a message is written at once
    amqp.ConfirmingPublisher._write = killed_half_way(amqp.ConfirmingPublisher._write)
    publisher.RedisPipeline._add = killed_half_way(publisher.RedisPipeline._add)
elif KILL_AT == "published":
    parked.settle = killed_after(lambda *_: None)
elif KILL_AT == "marked":
    parked.settle = killed_after(parked.settle)
