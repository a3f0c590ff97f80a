"""The app of ``proj`` whose letters go back by themselves. Leases are short."""

from proj import app, say, unless_fixed

from celery_dlq import (
    AutoRedrive,
    DLQTask,
    Filter,
    Limits,
    Requirements,
    Suspension,
    Timetable,
)
from celery_dlq.model.headers import sending_of
from celery_dlq.store import tenure
from celery_dlq.upkeep import chores, periodic
from celery_dlq.upkeep.automation import engine

tenure.LEASE_S, tenure.TRY_S = 2.0, 0.3
chores.TRY_S = engine.TRY_S = periodic.TRY_S = 0.3
periodic.IDLE_S = 1.0


def tell(status):
    say("suspended", status.name)


app.conf.dlq_auto_redrive = [
    # First, because the first one that matches takes a letter.
    AutoRedrive("trial", where=Filter(task="proj.auto"), after_s=0.0, mode="shadow"),
    AutoRedrive(
        "fix",
        where=Filter(task="proj.auto"),
        after_s=0.0,
        when=Timetable(every_s=1.0),
        limits=Limits(per_letter=3, growth=1.0, per_run=20),
        suspend=Suspension(success_below=0.5, of_last=10),
    ),
    AutoRedrive(
        "outage",
        where=Filter(task="proj.call"),
        after_s=0.0,
        when=Timetable(every_s=1.0),
        require=Requirements(closed_circuit=True),
        limits=Limits(per_letter=3, growth=1.0),
    ),
]
app.conf.dlq_hooks = {"auto_redrive_suspended": [tell]}


@app.task(base=DLQTask, name="proj.auto", acks_late=True, bind=True)
def auto(self, x):
    """Fails until it is fixed."""
    say("runs", x)
    redrive, copy = sending_of(self.request.headers) or (0, "")
    say("copies", f"{x} {redrive} {copy}")
    unless_fixed(ValueError(f"bad currency {x}"))


@app.task(
    base=DLQTask, name="proj.call", acks_late=True, max_retries=0, dlq_breaker_failures=3,
    dlq_breaker_recovery=1.0,
)  # fmt: skip
def call(x):
    """Calls a service that is away until it is fixed."""
    unless_fixed(ConnectionError("the bank is away"))
