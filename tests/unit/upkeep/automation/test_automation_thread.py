"""The thread that runs automations: the lease, its errors, and its end."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from celery import Celery

from celery_dlq.errors import OrdersError, StoreUnavailable
from celery_dlq.store.base import Lease, ToDo
from celery_dlq.store.tenure import TRY_S
from celery_dlq.upkeep.automation.engine import AutomationThread, lease_of
from celery_dlq.upkeep.periodic import IDLE_S
from celery_dlq.worker.writing.store_calls import StoreHealth

HELD = Lease(name="auto", token=1)


class Leases:
    """Gives the lease as the test says."""

    def __init__(self, lease, free_in_s):
        self.lease, self.free_in_s = lease, free_in_s
        self.taken, self.given_up = 0, 0

    def to_do(self, _name):
        return ToDo(lease_free_in_s=self.free_in_s, operations=False)

    def take(self, _name, *, holder, seconds):
        self.taken += 1
        return self.lease

    def give_up(self, _lease):
        self.given_up += 1


def thread(run=lambda _lease, _prolong: 3.0, lease=HELD, free_in_s=0.0, woken=None):
    leases = Leases(lease, free_in_s)
    app = Celery("shop", broker="memory://", set_as_current=False)
    dlq = SimpleNamespace(
        app=app, store=SimpleNamespace(leases=leases),
        automations=SimpleNamespace(run=run), store_health=StoreHealth(Path("spool")),
    )  # fmt: skip
    wake = (woken if woken is not None else []).append
    made = AutomationThread(dlq, "me", wake=lambda: wake(1), draw=lambda _low, high: high)
    return made, leases


def after_round(one):
    """Seconds until the next round, after one."""
    one.guarded(one.round)
    return one.pause_s()


def test_with_the_lease_it_runs_them_and_wakes_the_operations():
    woken = []
    one, _leases = thread(woken=woken)
    assert after_round(one) == 3.0
    assert woken == [1]


def test_it_looks_twice_a_second_at_most():
    one, _leases = thread(run=lambda _lease, _prolong: 0.0)
    assert after_round(one) == 0.5


@pytest.mark.parametrize(("free_in_s", "wait_s"), [(2.0, 2.0 + TRY_S), (99.0, IDLE_S + TRY_S)])
def test_without_the_lease_it_waits_and_takes_nothing(free_in_s, wait_s):
    one, leases = thread(free_in_s=free_in_s)
    assert after_round(one) == wait_s
    assert leases.taken == 0


def test_another_worker_may_have_been_first():
    one, leases = thread(lease=None)
    assert after_round(one) == TRY_S
    assert leases.taken == 1


def test_an_error_is_logged_once_and_its_end_too(caplog):
    caplog.set_level("INFO")
    errors = [OrdersError("a canary of 9 is too large")] * 3

    def run(_lease, _prolong):
        if errors:
            raise errors.pop()
        return 1.0

    one, _leases = thread(run)
    caplog.clear()
    waits = [after_round(one) for _ in range(4)]
    assert waits == [TRY_S, TRY_S, TRY_S, 1.0]
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "not all automations run: a canary of 9 is too large",
        "all automations run again",
    ]


@pytest.mark.parametrize("error", [StoreUnavailable(), RuntimeError("unexpected")])
def test_no_error_ends_it(error, caplog):
    def run(_lease, _prolong):
        raise error

    one, _leases = thread(run)
    assert after_round(one) == TRY_S
    assert caplog.records


def test_at_its_end_it_gives_up_the_lease():
    one, leases = thread()
    one.round()
    one.stop()
    one.run()
    assert leases.given_up == 1


def test_apps_that_share_a_store_have_leases_of_their_own():
    def app(name, broker="memory://"):
        return Celery(name, broker=broker, set_as_current=False)

    names = {lease_of(app("shop")), lease_of(app("mail")), lease_of(app("shop", "redis://other"))}
    assert len(names) == 3
    assert lease_of(app("shop")) in names
