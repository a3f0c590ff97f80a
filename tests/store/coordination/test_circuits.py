from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from functools import partial
from threading import Event

import pytest
from sqlalchemy.event import listens_for

from celery_dlq.model.states import Verdict
from celery_dlq.model.worker import Circuit, CircuitState
from celery_dlq.retry import BreakerLimits
from celery_dlq.retry.breaker import failed, probe_ended, probed
from celery_dlq.store.database import clock
from celery_dlq.store.sql import SQLStore

LIMITS = BreakerLimits(failures=3, window_s=60, recovery_s=0.0)
NAME = ("charge", "acme")


def fail(store, name=NAME, number=1, limits=LIMITS) -> Circuit:
    [circuit] = store.circuits.change({name: partial(failed, limits=limits, number=number)})
    return circuit


def change(store, rule, **options) -> Circuit:
    [circuit] = store.circuits.change({NAME: partial(rule, **options)})
    return circuit


def test_an_unknown_circuit_is_closed(store):
    assert store.circuits.read_open().circuits == ()


def test_failures_are_counted_together_and_open_the_circuit(store):
    assert fail(store).state is CircuitState.CLOSED
    assert fail(store).state is CircuitState.CLOSED
    assert store.circuits.read_open().circuits == ()

    opened = fail(store)

    assert (opened.state, opened.failures) == (CircuitState.OPEN, 3)
    seen = store.circuits.read_open()
    assert seen.circuits == (opened,)
    assert opened.opened_at <= seen.now


def test_keys_have_circuits_of_their_own(store):
    fail(store, ("charge", "acme"), 3)
    fail(store, ("charge", "ACME"), 2)
    fail(store, ("charge", ""), 2)
    fail(store, ("mail", "acme"), 2)
    assert [(c.task, c.key) for c in store.circuits.read_open().circuits] == [NAME]


@pytest.mark.on_servers
def test_several_circuits_are_changed_at_once(store):
    both = {(task, ""): partial(failed, limits=LIMITS, number=3) for task in ("mail", "charge")}
    assert {circuit.task for circuit in store.circuits.change(both)} == {"mail", "charge"}
    assert len(store.circuits.read_open().circuits) == 2


def test_nothing_to_change_is_not_an_error(store):
    assert store.circuits.change({}) == ()


@pytest.mark.on_servers
def test_a_circuit_is_kept_whole_through_its_life(store):
    opened = fail(store, number=3)
    half_open = change(store, probed, probe="p")
    assert (half_open.state, half_open.probe) == (CircuitState.HALF_OPEN, "p")
    assert half_open.opened_at == opened.opened_at
    assert (
        change(store, probe_ended, probe="p", verdict=Verdict.TRANSIENT, limits=LIMITS).probes == 1
    )
    assert change(store, probed, probe="q").probe == "q"
    assert change(
        store, probe_ended, probe="q", verdict=Verdict.TERMINAL, limits=LIMITS
    ) == Circuit(task="charge", key="acme")
    assert store.circuits.read_open().circuits == ()


@pytest.mark.on_servers
def test_names_and_keys_may_be_hostile(store):
    for key in ("\x00", "'; DROP TABLE x", "ключ 🔑", "x" * 200):
        fail(store, ("charge", key), 3)
        assert fail(store, ("charge", key)).state is CircuitState.OPEN
    assert len(store.circuits.read_open().circuits) == 4


@pytest.mark.parametrize("round_", range(3))
@pytest.mark.on_servers
def test_one_of_many_that_ask_at_once_gets_the_probe(database_url, store, round_):
    fail(store, number=3)
    stores = [SQLStore(database_url, timeout=30) for _ in range(4)]

    def ask(number):
        return change(stores[number], probed, probe=str(number)).probe == str(number)

    with ThreadPoolExecutor(4) as pool:
        granted = list(pool.map(ask, range(4)))
    for other in stores:
        other.close()
    assert sum(granted) == 1


@pytest.mark.on_servers
def test_failures_that_are_reported_at_once_are_all_counted(database_url, store):
    stores = [SQLStore(database_url, timeout=30) for _ in range(4)]
    many = BreakerLimits(failures=1_000, window_s=600, recovery_s=1)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: fail(stores[number % 4], limits=many), range(20)))
    for other in stores:
        other.close()
    assert sum(count for _, count in fail(store, limits=many).recent) == 21


@pytest.mark.on_servers
def test_a_failure_that_was_counted_while_another_waited_stays(database_url, store):
    if store.database.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    many = BreakerLimits(failures=1_000, window_s=600, recovery_s=1)
    fail(store, limits=many)
    other = SQLStore(database_url, timeout=30)
    asks = Event()

    @listens_for(other.database.engine, "before_cursor_execute")
    def note(_connection, _cursor, statement, *_rest):
        if "FOR UPDATE" in statement:
            asks.set()

    def fail_while_another_waits(circuit: Circuit, _now: datetime) -> Circuit:
        waiting.append(pool.submit(fail, other, limits=many))
        assert asks.wait(30)
        with store.database.engine.connect() as connection:
            return replace(circuit, recent=((clock.now(connection).timestamp(), 2),))

    waiting: list[Future[Circuit]] = []
    with ThreadPoolExecutor(1) as pool:
        store.circuits.change({NAME: fail_while_another_waits})
    other.close()
    assert sum(count for _, count in waiting[0].result().recent) == 3


@pytest.mark.on_servers
def test_a_circuit_without_events_is_forgotten(store):
    fail(store, number=3)
    assert store.circuits.prune(older_than_s=60) == 0
    assert store.circuits.prune(older_than_s=-1) == 1
    assert store.circuits.read_open().circuits == ()
