"""What a circuit becomes: the rules, and what holds whatever happens to it."""

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.factories import T0

from celery_dlq.model.states import Verdict
from celery_dlq.model.worker import Circuit, CircuitState
from celery_dlq.retry import BreakerLimits
from celery_dlq.retry.breaker import (
    MAX_RECOVERY_FACTOR,
    PROBE_S,
    failed,
    may_be_probed,
    probe_ended,
    probed,
    still_probed,
)

LIMITS = BreakerLimits(failures=3, window_s=60, recovery_s=10)
succeeded = partial(probe_ended, verdict=Verdict.TERMINAL, limits=LIMITS)
inconclusive = partial(probe_ended, verdict=None, limits=LIMITS)
failed_again = partial(probe_ended, verdict=Verdict.TRANSIENT, limits=LIMITS)
CLOSED = Circuit(task="charge", key="acme")


def at(seconds):
    return T0 + timedelta(seconds=seconds)


def opened(seconds=0):
    return failed(CLOSED, at(seconds), LIMITS, LIMITS.failures)


def half_open(seconds=10, probe="p"):
    return probed(opened(), at(seconds), probe)


def test_a_circuit_opens_at_the_limit():
    twice = failed(failed(CLOSED, T0, LIMITS), at(1), LIMITS)
    assert twice.state is CircuitState.CLOSED

    open_ = failed(twice, at(2), LIMITS)

    assert (open_.state, open_.failures) == (CircuitState.OPEN, 3)
    assert (open_.opened_at, open_.probe_at) == (at(2), at(12))
    assert open_.name == "charge[acme]"


def test_it_opens_when_one_worker_has_itself_seen_the_limit():
    """The failures that it told before may not have arrived."""
    assert failed(CLOSED, T0, LIMITS, 1, seen=2).state is CircuitState.CLOSED
    open_ = failed(CLOSED, T0, LIMITS, 1, seen=3)
    assert (open_.state, open_.failures) == (CircuitState.OPEN, 3)
    assert failed(open_, at(1), LIMITS, 1, seen=9) == open_


def test_failures_older_than_the_window_do_not_count():
    circuit = failed(CLOSED, T0, LIMITS, 2)
    assert failed(circuit, at(60), LIMITS).state is CircuitState.CLOSED
    assert failed(circuit, at(59), LIMITS).state is CircuitState.OPEN


def test_a_steady_trickle_below_the_limit_never_opens():
    circuit = CLOSED
    for minute in range(100):
        circuit = failed(circuit, at(30.5 * minute), LIMITS)
    assert circuit.state is CircuitState.CLOSED
    assert len(circuit.recent) <= 2


def test_failures_of_runs_that_began_before_change_nothing():
    assert failed(opened(), at(1), LIMITS, 50) == opened()
    assert failed(half_open(), at(11), LIMITS, 50) == half_open()


def test_a_probe_runs_when_the_recovery_time_is_over_and_no_other_beside_it():
    assert probed(opened(), at(9), "p") == opened()
    circuit = half_open()
    assert (circuit.state, circuit.probe) == (CircuitState.HALF_OPEN, "p")
    assert probed(circuit, at(11), "q") == circuit


def test_a_probe_that_is_heard_of_no_more_gives_way():
    assert probed(half_open(), at(10 + PROBE_S), "q").probe == "q"
    heard = still_probed(half_open(), at(10 + PROBE_S - 1), "p")
    assert probed(heard, at(10 + PROBE_S), "q") == heard


def test_a_probe_that_succeeds_closes_the_circuit_and_nothing_is_kept():
    assert succeeded(half_open(), at(11), "p") == CLOSED


def test_a_probe_that_fails_doubles_the_time_up_to_a_bound():
    circuit, waits = opened(), []
    for _ in range(6):
        due = circuit.probe_at
        circuit = failed_again(probed(circuit, due, "p"), due, "p")
        waits.append((circuit.probe_at - due).total_seconds())
    assert waits == [
        20,
        40,
        80,
        10 * MAX_RECOVERY_FACTOR,
        10 * MAX_RECOVERY_FACTOR,
        10 * MAX_RECOVERY_FACTOR,
    ]
    assert circuit.probes == 6


def test_a_probe_that_told_nothing_lets_another_one_run_at_once():
    circuit = inconclusive(half_open(), at(11), "p")
    assert (circuit.state, circuit.probes) == (CircuitState.OPEN, 0)
    assert may_be_probed(circuit, at(11))


@pytest.mark.parametrize(
    "end",
    [
        succeeded,
        inconclusive,
        still_probed,
        failed_again,
    ],
)
@pytest.mark.parametrize("circuit", [CLOSED, opened(), half_open(probe="q")])
def test_reports_of_other_messages_are_ignored(end, circuit):
    assert end(circuit, at(99), probe="p") == circuit


def test_a_clock_that_was_set_back_keeps_no_failures_of_the_future():
    circuit = failed(CLOSED, at(1_000), LIMITS, 2)
    assert failed(circuit, T0, LIMITS).recent == ((T0.timestamp(), 1),)


tokens = st.sampled_from("pqr")
happenings = st.one_of(
    st.integers(1, 5).map(lambda number: partial(failed, limits=LIMITS, number=number)),
    tokens.map(lambda token: partial(probed, probe=token)),
    tokens.map(lambda token: partial(still_probed, probe=token)),
    tokens.map(lambda token: partial(succeeded, probe=token)),
    tokens.map(lambda token: partial(inconclusive, probe=token)),
    tokens.map(lambda token: partial(failed_again, probe=token)),
)
lives = st.lists(st.tuples(st.floats(0, 100), happenings), max_size=40)


@given(lives)
def test_whatever_happens_it_can_always_close_again(life):
    circuit, now = CLOSED, T0
    for seconds, happens in life:
        now += timedelta(seconds=seconds)
        circuit = happens(circuit, now)
        assert_whole(circuit)
    later = now + timedelta(seconds=LIMITS.recovery_s * MAX_RECOVERY_FACTOR + PROBE_S)
    if circuit.state is not CircuitState.CLOSED:
        circuit = succeeded(probed(circuit, later, "z"), later, "z")
    assert circuit.state is CircuitState.CLOSED


def assert_whole(circuit):
    is_open = circuit.state is CircuitState.OPEN
    is_half_open = circuit.state is CircuitState.HALF_OPEN
    assert (circuit.probe_at is not None) == is_open
    assert (circuit.probe_until is not None) == bool(circuit.probe) == is_half_open
    assert (circuit.opened_at is not None) == (is_open or is_half_open)
    assert not circuit.recent or circuit.state is CircuitState.CLOSED
    assert len(circuit.recent) <= 11


@given(lives)
def test_only_one_probe_is_believed_to_run_at_a_time(life):
    circuit, now, until = CLOSED, T0, {}
    for seconds, happens in life:
        now += timedelta(seconds=seconds)
        before, circuit = circuit, happens(circuit, now)
        if circuit.probe and circuit.probe != before.probe:
            assert not before.probe or until[before.probe] <= now
        until[circuit.probe] = circuit.probe_until or now


@given(st.lists(st.floats(0, 200), max_size=60))
def test_it_opens_only_when_enough_failed_within_the_window(times):
    circuit, seen = CLOSED, []
    for seconds in sorted(times):
        seen.append(seconds)
        circuit = failed(circuit, at(seconds), LIMITS)
        if circuit.state is CircuitState.OPEN:
            within = [time for time in seen if seconds - time < LIMITS.window_s]
            assert len(within) >= LIMITS.failures
            return
        within = [time for time in seen if seconds - time < LIMITS.window_s * 0.89]
        assert len(within) < LIMITS.failures


@given(lives)
def test_a_change_that_is_applied_again_in_a_repeated_transaction_does_the_same(life):
    circuit, now = CLOSED, T0
    for seconds, happens in life:
        now += timedelta(seconds=seconds)
        assert happens(circuit, now) == happens(replace(circuit), now)
        circuit = happens(circuit, now)
