"""Automatic redrives of a SQLite store, on a clock that the tests move."""

from __future__ import annotations

import uuid
from datetime import timedelta

from support.factories import T0, attempt, letter

from celery_dlq import AutoRedrive, Filter, Settings, State
from celery_dlq.base.redact import Redactor
from celery_dlq.model.automation import Candidate
from celery_dlq.model.letter import Outcome
from celery_dlq.redrive.broker.message import Sent
from celery_dlq.redrive.context import Clock, RedriveContext
from celery_dlq.redrive.operation import Operations
from celery_dlq.upkeep.automation.engine import Engine

CHARGES = Filter(task="shop.charge")
#: Of a lease that no test wants to end.
LEASE_S = 1_000_000.0


class World:
    """Letters, workers that run what is sent, and one process that has the lease.

    :param autos: the automatic redrives.
    """

    def __init__(self, app, store, *autos, **settings):
        self.app, self.store = app, store
        self.now = T0 + timedelta(hours=1)
        #: The task ids of all messages that were sent, in order.
        self.sent = []
        #: Whether the run of a message fails; called with its task id.
        self.fails = lambda _task_id: False
        #: The fingerprint of a new failure.
        self.fingerprint_of = lambda _task_id: "9c1e0000deadbeef"
        #: Letters that failed differently than before, and those of them that were sent after it.
        self.changed, self.sent_after_change = set(), []
        #: Tasks that report no outcome.
        self.silent = set()
        self.settings = Settings(auto_redrive=autos, **settings)
        self.engine, self.operations = self._engine()
        self.lease = self.stale = self.take_lease("a worker")

    def _engine(self):
        clock = Clock(
            now=lambda: self.now, monotonic=lambda: self.now.timestamp(), sleep=self.sleep
        )
        context = RedriveContext(
            app=self.app, store=self.store, settings=self.settings, redactor=Redactor(),
            reports=lambda task: task not in self.silent, clock=clock,
        )  # fmt: skip
        operations = Operations(context)
        return Engine(context, operations, {}), operations

    def take_lease(self, holder):
        return self.store.leases.take("auto.test", holder=holder, seconds=LEASE_S)

    def restart(self):
        """Another process takes over; nothing is remembered but what the store has."""
        self.engine, self.operations = self._engine()

    def usurp(self):
        """Another process gets the lease, and this one does not know."""
        self.store.leases.give_up(self.lease)
        self.stale, self.lease = self.lease, self.take_lease(f"worker {uuid.uuid4().hex}")

    def pass_(self, seconds):
        self.now += timedelta(seconds=seconds)

    def sleep(self, seconds):
        """Wait as a redrive does, while workers run what was sent."""
        self.pass_(seconds)
        self.run_messages()

    def die(self, *names, minutes=0.0, **changes):
        """Let messages fail for the first time, this many minutes after T0."""
        made = [letter(name, attempt(minutes=minutes), **changes) for name in names]
        self.store.letters.save(made)

    def round(self):
        """One round of the upkeep; what it begins is run, and so are the messages."""
        wait_s = self.engine.run(self.lease, lambda: self.lease)
        self.run_operations()
        self.run_messages()
        return wait_s

    def run_operations(self):
        for left in self.operations.left():
            self.operations.carry_on(left.id, lambda one=left: self.engine.must_stop(one))

    def publish(self, letters):
        ids = [made.task_id for made in letters]
        self.sent += ids
        self.sent_after_change += [name for name in ids if name in self.changed]
        return Sent(confirmed=ids)

    def run_messages(self):
        """Run the messages that wait, in the order of their sending."""
        for made in self._redriven():
            self.pass_(0.001)
            if self.fails(made.task_id):
                self._fail(made)
            else:
                self.store.letters.record_outcomes([
                    Outcome(
                        task_id=made.task_id, redrive=made.redrive_count,
                        succeeded_at=self.now, worker="w",
                    )
                ])  # fmt: skip

    def _redriven(self):
        return self.store.letters.find(
            Filter(states=frozenset({State.REDRIVEN})), limit=500
        ).letters

    def _fail(self, made):
        minutes = (self.now - T0).total_seconds() / 60
        again = attempt(redrive=made.redrive_count, minutes=minutes)
        fingerprint = self.fingerprint_of(made.task_id)
        if fingerprint != made.fingerprint:
            self.changed.add(made.task_id)
        self.store.letters.save([letter(made.task_id, again, fingerprint=fingerprint)])

    def state(self, name):
        return self.store.automations.statuses()[name].state.value

    def states(self):
        everything = Filter(states=frozenset(State) - {State.PARKED})
        page = self.store.letters.find(everything, limit=500)
        return {made.task_id: made.state.value for made in page.letters}


def auto(name="charges", **changes):
    return AutoRedrive(name, **{"where": CHARGES, "after_s": 600.0, **changes})


def candidate(task_id, fingerprint="9c1e0000deadbeef"):
    return Candidate(
        number=1, task_id=task_id, task="shop.charge", fingerprint=fingerprint, release="",
        failed_at=T0, redrive_count=0,
    )  # fmt: skip


def queue(store, lease, scope, limit=100):
    """Queue the next letters for a handler, as the engine does."""
    found = store.automations.candidates(scope, limit=limit)
    assert not found or store.automations.queue(lease, scope, found)
