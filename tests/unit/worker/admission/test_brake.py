import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clock import Clock

from celery_dlq.worker.admission.brake import Brake, Braked, Limits, Released

LIMITS = Limits(failures=3, window_s=10, pause_s=5, pause_max_s=15)


@pytest.fixture
def clock():
    return Clock(1_000.0)


@pytest.fixture
def said():
    return []


@pytest.fixture
def brake(clock, said):
    return Brake(LIMITS, said.append, clock)


def fail(brake, times, task="charge"):
    for _ in range(times):
        brake.failed(task)


def test_it_engages_at_the_limit_and_says_so_once(brake, said):
    fail(brake, 2)
    assert not brake.is_on("charge")
    fail(brake, 5)
    assert brake.is_on("charge")
    assert said == [Braked("charge", failures=3, probes=0, pause_s=5)]


def test_one_success_among_the_failures_keeps_it_off(brake):
    fail(brake, 2)
    brake.succeeded("charge")
    fail(brake, 2)
    assert not brake.is_on("charge")


def test_failures_far_apart_do_not_count(brake, clock):
    for _ in range(20):
        brake.failed("charge")
        clock.now += 5.1
    assert not brake.is_on("charge")


def test_a_task_is_not_braked_for_another_one(brake):
    fail(brake, 3)
    brake.succeeded("mail")
    fail(brake, 2, "mail")
    assert brake.is_on("charge")
    assert not brake.is_on("mail")


def test_one_message_is_tried_after_the_pause(brake, clock):
    fail(brake, 3)
    clock.now += 4.9
    assert not brake.take_probe("charge")
    clock.now += 0.1
    assert brake.take_probe("charge")
    assert not brake.take_probe("charge"), "one at a time"


def test_a_probe_that_succeeds_releases(brake, clock, said):
    fail(brake, 3)
    clock.now += 5
    assert brake.take_probe("charge")
    brake.succeeded("charge")
    assert not brake.is_on("charge")
    assert said[-1] == Released("charge", failures=3, probes=1, after_s=5)
    fail(brake, 2)
    assert not brake.is_on("charge"), "it counts from the beginning"


def test_pauses_grow_with_each_probe_that_fails_up_to_the_maximum(brake, clock, said):
    fail(brake, 3)
    for pause, following in ((5, 10), (10, 15), (15, 15)):
        clock.now += pause - 0.1
        assert not brake.take_probe("charge")
        clock.now += 0.1
        assert brake.take_probe("charge")
        brake.failed("charge")
        assert said[-1].pause_s == following


def test_a_probe_without_a_verdict_is_followed_by_another_after_the_same_pause(brake, clock):
    fail(brake, 3)
    clock.now += 5
    assert brake.take_probe("charge")
    brake.probe_ended("charge")
    assert not brake.take_probe("charge")
    clock.now += 5
    assert brake.take_probe("charge")


def test_runs_that_began_before_the_brake_do_not_lengthen_the_pause(brake, clock):
    fail(brake, 10)
    clock.now += 5
    assert brake.take_probe("charge")


def test_a_late_success_of_a_run_that_began_before_releases_too(brake):
    fail(brake, 3)
    brake.succeeded("charge")
    assert not brake.is_on("charge")


def test_the_status_tells_what_is_braked(brake, clock):
    fail(brake, 4)
    fail(brake, 1, "mail")
    clock.now += 7
    assert brake.status() == {"charge": {"failures": 4, "probes": 0, "for_s": 7.0}}


STEPS = st.lists(
    st.one_of(
        st.sampled_from(["failed", "succeeded", "probe", "probe ended"]),
        st.floats(0.1, 20).map(lambda seconds: round(seconds, 1)),
    ),
    max_size=80,
)


@given(STEPS)
def test_whatever_happens_the_brake_keeps_its_rules(steps):
    """Against the whole history, which the brake does not keep."""
    clock, history = Clock(1_000.0), []
    brake = Brake(LIMITS, lambda _: None, clock)
    paused_at, probing = None, False
    for step in steps:
        was_on = brake.is_on("charge")
        if isinstance(step, float):
            clock.now += step
        elif step == "failed":
            brake.failed("charge")
            history.append(clock.now)
            latest = history[-LIMITS.failures :]
            passed = len(latest) == LIMITS.failures and latest[-1] - latest[0] <= LIMITS.window_s
            assert brake.is_on("charge") == (was_on or passed)
            if probing or not was_on:
                paused_at, probing = clock.now, False
        elif step == "succeeded":
            brake.succeeded("charge")
            history, probing = [], False
            assert not brake.is_on("charge")
        elif step == "probe":
            taken = brake.take_probe("charge")
            assert not (taken and (probing or not was_on))
            if taken:
                assert clock.now - paused_at >= LIMITS.pause_s
                probing = True
            elif was_on and not probing:
                assert clock.now - paused_at < LIMITS.pause_max_s, "no pause is longer"
        else:
            brake.probe_ended("charge")
            if probing:
                paused_at, probing = clock.now, False
            assert brake.is_on("charge") == was_on
