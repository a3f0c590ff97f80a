"""Which of the releases that are due go while circuits are open."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
from support.factories import T0, envelope, parking

from celery_dlq.model.headers import CIRCUIT_HEADER
from celery_dlq.model.worker import Circuit, Circuits, CircuitState
from celery_dlq.store.base import Release
from celery_dlq.upkeep.parked import keep_back


class FakeStore:
    def __init__(self, *circuits):
        found = Circuits(now=T0, circuits=circuits)
        self.circuits, self.put = SimpleNamespace(read_open=lambda: found), {}
        self.parked = self

    def put_off(self, releases, *, delay_s):
        self.put |= {release.parking: delay_s for release in releases}


def circuit(key="", **fields):
    values = {"state": CircuitState.OPEN, "opened_at": T0, **fields}
    times = {
        name: T0 + timedelta(seconds=values[name])
        for name in ("probe_at", "probe_until")
        if name in values
    }
    return Circuit(task="shop.charge", key=key, **{**values, **times})


def release(name, key=""):
    headers = {} if key is None else {CIRCUIT_HEADER: key}
    letter = parking(name, -1, envelope=envelope(name, headers=headers))
    return Release(parking=name, copy=1, letter=letter)


def going(store, *taken):
    return [item.parking for item in keep_back(store, taken, draw=lambda _low, high: high)]


def test_retries_that_no_breaker_parked_are_released_directly():
    assert going(None, release("a", None), release("b", None)) == ["a", "b"]


def test_while_it_is_open_all_stay_until_a_probe_may_run():
    store = FakeStore(circuit(probe_at=30))
    assert going(store, release("a"), release("b", None), release("c", "acme")) == ["b", "c"]
    assert store.put == {"a": 60.0}


def test_when_a_probe_may_run_one_of_each_circuit_goes():
    store = FakeStore(circuit(probe_at=-1), circuit("acme", probe_at=-1))
    taken = [release(f"{key}{number}", key) for number in range(3) for key in ("", "acme")]
    assert sorted(going(store, *taken)) == ["0", "acme0"]
    assert set(store.put) == {"1", "2", "acme1", "acme2"}


def test_while_a_probe_runs_the_others_wait_for_its_end():
    store = FakeStore(circuit(state=CircuitState.HALF_OPEN, probe="p", probe_until=20))
    assert going(store, release("a")) == []
    assert store.put == {"a": 4.0}


@pytest.mark.parametrize(
    "lapsed",
    [
        circuit(probe_at=-61),
        circuit(state=CircuitState.HALF_OPEN, probe="p", probe_until=-61),
    ],
)
def test_a_circuit_without_a_probe_keeps_nothing_back(lapsed):
    taken = [release(str(number)) for number in range(3)]
    assert going(FakeStore(lapsed), *taken) == ["0", "1", "2"]


def test_those_that_are_put_off_do_not_all_come_back_at_once():
    store, drawn = FakeStore(circuit(probe_at=30)), iter(range(100))
    keep_back(store, [release(str(n)) for n in range(100)], draw=lambda *_: float(next(drawn)))
    assert len(set(store.put.values())) == 10
