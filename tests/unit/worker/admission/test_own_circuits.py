"""The circuits that a worker opens by itself."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clock import Clock

from celery_dlq.model.worker import CircuitState
from celery_dlq.retry import BreakerLimits
from celery_dlq.retry.breaker import MAX_RECOVERY_FACTOR, SLICES
from celery_dlq.worker.admission.circuits import OwnCircuits

LIMITS = BreakerLimits(failures=3, window_s=10, recovery_s=5)


@pytest.fixture
def clock():
    return Clock(1_000.0)


def own_circuits(clock):
    return OwnCircuits({"charge": LIMITS, "mail": LIMITS}, clock)


@pytest.fixture
def circuits(clock):
    return own_circuits(clock)


def is_open(circuits, task):
    return circuits.state_of(task) is not CircuitState.CLOSED


def fail(circuits, times, task="charge"):
    for _ in range(times):
        circuits.failed(task)


def test_one_opens_at_the_limit_and_says_so_once(circuits, caplog):
    fail(circuits, 2)
    assert not is_open(circuits, "charge")
    fail(circuits, 5)
    assert is_open(circuits, "charge")
    assert caplog.messages == [
        "circuit of charge open in this worker: 3 failed runs and no success; its messages are held, and "
        "one is tried in 5 s"
    ]


def test_one_success_among_the_failures_keeps_it_closed(circuits):
    fail(circuits, 2)
    circuits.succeeded("charge")
    fail(circuits, 2)
    assert not is_open(circuits, "charge")


def test_failures_far_apart_do_not_count(circuits, clock):
    for _ in range(20):
        circuits.failed("charge")
        clock.now += 5.1
    assert not is_open(circuits, "charge")


def test_a_task_has_a_circuit_of_its_own(circuits):
    fail(circuits, 3)
    circuits.succeeded("mail")
    fail(circuits, 2, "mail")
    assert is_open(circuits, "charge")
    assert not is_open(circuits, "mail")


def test_a_task_without_a_limit_has_none(circuits):
    fail(circuits, 100, "plain")
    circuits.succeeded("plain")
    assert not is_open(circuits, "plain")


def test_one_message_is_tried_after_the_recovery_time(circuits, clock):
    fail(circuits, 3)
    clock.now += 4.9
    assert not circuits.take_probe("charge", "a")
    clock.now += 0.1
    assert circuits.take_probe("charge", "a")
    assert not circuits.take_probe("charge", "b"), "one at a time"
    clock.now += 1_000
    assert not circuits.take_probe("charge", "b"), "however long it runs"


def test_a_probe_that_succeeds_closes_it(circuits, clock, caplog):
    caplog.set_level(logging.INFO)
    fail(circuits, 3)
    clock.now += 5
    assert circuits.take_probe("charge", "a")
    circuits.succeeded("charge")
    assert not is_open(circuits, "charge")
    assert caplog.messages[-1] == "circuit of charge closed in this worker: its messages run again"
    fail(circuits, 2)
    assert not is_open(circuits, "charge"), "it counts from the beginning"


def test_the_time_doubles_with_each_probe_that_fails_up_to_the_maximum(circuits, clock, caplog):
    fail(circuits, 3)
    for wait_s, following in ((5, 10), (10, 20), (20, 40), (40, 50), (50, 50)):
        clock.now += wait_s - 0.1
        assert not circuits.take_probe("charge", "a")
        clock.now += 0.1
        assert circuits.take_probe("charge", "a")
        circuits.failed("charge")
        assert caplog.messages[-1].endswith(f"failed, the next is in {following} s")


def test_a_probe_without_a_verdict_is_followed_by_another_after_the_same_time(circuits, clock):
    fail(circuits, 3)
    for wait_s, fails in ((5, False), (5, True), (10, False), (10, True)):
        clock.now += wait_s - 0.1
        assert not circuits.take_probe("charge", "a")
        clock.now += 0.1
        assert circuits.take_probe("charge", "a")
        if fails:
            circuits.failed("charge")
        circuits.probe_ended("charge", "a")


def test_the_end_of_another_message_does_not_end_the_probe(circuits, clock):
    fail(circuits, 3)
    clock.now += 5
    assert circuits.take_probe("charge", "a")
    circuits.probe_ended("charge", "b")
    circuits.probe_ended("mail", "a")
    assert not circuits.take_probe("charge", "b")


def test_runs_that_began_before_it_opened_do_not_lengthen_the_time(circuits, clock):
    fail(circuits, 10)
    clock.now += 5
    assert circuits.take_probe("charge", "a")


def test_a_late_success_of_a_run_that_began_before_closes_it_too(circuits):
    fail(circuits, 3)
    circuits.succeeded("charge")
    assert not is_open(circuits, "charge")


def test_the_state_of_a_circuit_is_known(circuits, clock):
    fail(circuits, 4)
    fail(circuits, 1, "mail")
    assert circuits.state_of("charge") is CircuitState.OPEN
    assert circuits.known["charge"].failures == 3
    assert circuits.state_of("mail") is CircuitState.CLOSED
    clock.now += 5
    circuits.take_probe("charge", "a")
    assert circuits.state_of("charge") is CircuitState.HALF_OPEN


STEPS = st.lists(
    st.one_of(
        st.sampled_from(["failed", "succeeded", "probe", "probe ended"]),
        st.floats(0.1, 20).map(lambda seconds: round(seconds, 1)),
    ),
    max_size=80,
)


@given(STEPS)
def test_whatever_happens_the_rules_hold(steps):
    """Against the whole history, which the circuits do not keep."""
    clock, history = Clock(1_000.0), []
    circuits = own_circuits(clock)
    waits_since, probing = None, False
    for step in steps:
        was_open = is_open(circuits, "charge")
        if isinstance(step, float):
            clock.now += step
        elif step == "failed":
            circuits.failed("charge")
            history.append(clock.now)
            opened = is_open(circuits, "charge")
            assert opened or not was_open
            if not was_open:
                # Failures are counted in slices of the window.
                surely = passed(history, LIMITS.window_s * (1 - 1 / SLICES) - 0.01)
                assert surely <= opened <= passed(history, LIMITS.window_s)
            if probing or not was_open:
                waits_since, probing = clock.now, False
        elif step == "succeeded":
            circuits.succeeded("charge")
            history, probing = [], False
            assert not is_open(circuits, "charge")
        elif step == "probe":
            taken = circuits.take_probe("charge", "a")
            assert not (taken and (probing or not was_open))
            if taken:
                assert clock.now - waits_since >= LIMITS.recovery_s - 0.01
                probing = True
            elif was_open and not probing:
                longest = LIMITS.recovery_s * MAX_RECOVERY_FACTOR
                assert clock.now - waits_since < longest, "no wait is longer"
        else:
            circuits.probe_ended("charge", "a")
            if probing:
                waits_since, probing = clock.now, False
            assert is_open(circuits, "charge") == was_open


def passed(history, window_s):
    latest = history[-LIMITS.failures :]
    return len(latest) == LIMITS.failures and latest[-1] - latest[0] <= window_s
