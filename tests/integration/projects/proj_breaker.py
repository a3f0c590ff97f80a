"""The app of ``proj`` with tasks that call a service which is away until the fix is there, and quick looks
at the circuits."""

import os
import signal

from proj import FIXED, app, say

from celery_dlq import DLQTask
from celery_dlq.store import tenure
from celery_dlq.upkeep import chores, parked, periodic
from celery_dlq.worker.admission import valve

valve.TICK_S = 0.1
tenure.LEASE_S, tenure.TRY_S = 1.0, 0.2
periodic.TRY_S = chores.TRY_S = 0.2
chores.LOOK_S = 0.1
parked.PROBING_S = 0.2

KILLED = FIXED.with_name("killed")


def killed_by_the_hundredth(function):
    """Dies, once, with message 100 parked and not yet acknowledged."""

    def call(self, request, *args):
        if request.args[0] == 100 and request.task.acks_late and not KILLED.exists():
            KILLED.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return function(self, request, *args)

    return call


valve.Valve._parked = killed_by_the_hundredth(valve.Valve._parked)

BREAKER = {
    "max_retries": 50,
    "dlq_breaker_failures": 3,
    "dlq_breaker_recovery": float(os.environ.get("PROJ_RECOVERY_S", "0.3")),
}


def call_the_bank(task, x):
    say("calls", f"{x} {task.request.retries}")
    if not FIXED.exists():
        raise ConnectionError("the bank is away")
    say("done", x)
    return x


@app.task(base=DLQTask, name="proj.calls", bind=True, **BREAKER)
def calls(self, x):
    return call_the_bank(self, x)


@app.task(base=DLQTask, name="proj.calls_late", bind=True, acks_late=True, **BREAKER)
def calls_late(self, x):
    return call_the_bank(self, x)


@app.task(base=DLQTask, name="proj.calls_once", bind=True, **{**BREAKER, "max_retries": 0})
def calls_once(self, x):
    return call_the_bank(self, x)


@app.task(base=DLQTask, name="proj.calls_one_of", dlq_breaker_key="{customer}", **BREAKER)
def calls_one_of(x, customer):
    if customer == "acme" and not FIXED.exists():
        raise ConnectionError("acme's host is away")
    say("done", f"{customer} {x}")
