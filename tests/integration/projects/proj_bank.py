"""The app of ``proj`` with one task that calls a bank, with the schedule, the breaker and the pace of
production."""

from proj import FIXED, app, say

from celery_dlq import DLQTask
from celery_dlq.upkeep import chores, parked, periodic

# So that the test waits no longer for parked messages than for the circuit.
periodic.TRY_S = chores.TRY_S = 0.2
chores.LOOK_S = 0.1
parked.PROBING_S = 0.2

#: Shorter than the defaults, which take minutes; ``proj`` has even shorter ones.
SCHEDULE = {"max_retries": 4, "retry_backoff": 0.2, "retry_backoff_max": 60.0}


@app.task(
    base=DLQTask, name="proj.calls", bind=True,
    dlq_breaker_failures=5, dlq_breaker_recovery=1.0, **SCHEDULE,
)  # fmt: skip
def calls(self, x):
    say("calls", f"{x} {self.request.retries}")
    if not FIXED.exists():
        raise ConnectionRefusedError(111, "the bank refuses")
    say("done", x)


@app.task(
    base=DLQTask, name="proj.calls_twice", bind=True, max_retries=1, default_retry_delay=0.3,
    dlq_breaker_failures=2, dlq_breaker_recovery=0.3,
)  # fmt: skip
def calls_twice(self, x):
    say("calls", x)
    if not FIXED.exists():
        raise ConnectionRefusedError(111, "the bank refuses")
    say("done", x)
