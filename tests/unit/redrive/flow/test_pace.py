import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.redrive.flow.pace import STEP_S, Pace, Steps


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self):
        self.now = 100.0

    def sleep(self, seconds):
        assert seconds > 0
        self.now += seconds


def paced(rate, ramp_s=0.0):
    clock = Clock()
    return Pace(rate, ramp_s, monotonic=lambda: clock.now), clock


def send(pace, clock, most=500):
    """One step, as soon as it may be sent; returns how many it was."""
    while delay_s := pace.delay_s():
        clock.sleep(max(delay_s, 1e-6))
    size = pace.batch_size(most)
    pace.took(size)
    return size


def test_without_a_rate_nothing_waits():
    pace, clock = paced(None)
    assert [send(pace, clock) for _ in range(10)] == [500] * 10
    assert clock.now == 100.0


@given(st.floats(0.5, 5_000), st.integers(1, 2_000))
def test_the_rate_is_kept_over_any_stretch(rate, total):
    pace, clock = paced(rate)
    sent = 0
    while sent < total:
        before = sent
        sent += send(pace, clock, min(500, total - sent))
        # Never ahead of the rate by more than the step just sent.
        assert before <= (clock.now - 100.0) * rate + 1e-3


@given(st.floats(1, 1_000), st.floats(0.5, 300), st.integers(1, 1_000))
def test_a_ramp_sends_as_much_as_the_area_under_it(rate, ramp_s, total):
    pace, clock = paced(rate, ramp_s)
    sent = 0
    while sent < total:
        before = sent
        sent += send(pace, clock, total - sent)
        elapsed = clock.now - 100.0
        on_ramp = min(elapsed, ramp_s)
        area = rate * on_ramp**2 / ramp_s / 2 + rate * (elapsed - on_ramp)
        assert before <= area * (1 + 1e-6) + 1e-3


def test_a_ramp_begins_slowly_and_ends_at_the_rate():
    pace, clock = paced(100.0, 60.0)
    times = []
    while clock.now < 200.0:
        times += [clock.now - 100.0] * send(pace, clock)
    per_ten_s = [sum(10 * n <= at < 10 * (n + 1) for at in times) for n in range(10)]
    assert per_ten_s[:6] == sorted(per_ten_s[:6])
    assert per_ten_s[0] < 120
    assert all(960 <= number <= 1_040 for number in per_ten_s[7:])


@given(st.floats(1, 1_000), st.floats(0, 100), st.floats(0.1, 10_000))
def test_a_wait_for_something_else_is_not_made_up_for(rate, ramp_s, pause_s):
    pace, clock = paced(rate, ramp_s)
    send(pace, clock)
    clock.now += pause_s
    began, burst = clock.now, 0
    while clock.now < began + 1.0:
        burst += send(pace, clock)
    assert burst <= rate * (1.0 + 3 * STEP_S) + 2


def test_a_slow_publisher_is_not_slowed_further():
    pace, clock = paced(10)
    pace.took(1)
    clock.now += 60
    assert pace.delay_s() == 0.0


def test_steps_are_short_even_at_low_rates():
    assert paced(50)[0].batch_size(500) == 12
    assert paced(1)[0].batch_size(500) == 1
    assert paced(100_000)[0].batch_size(500) == 500
    assert paced(1_000, 60.0)[0].batch_size(500) == 1


@pytest.mark.parametrize("ramp_s", [0.0, 10.0])
def test_the_first_goes_at_once(ramp_s):
    assert paced(0.001, ramp_s)[0].delay_s() == 0.0


@given(st.floats(0.001, 1.0), st.floats(60, 600))
def test_claims_are_marked_within_their_lease_however_long_a_letter_takes(letter_s, lease_s):
    steps = Steps(lease_s)
    for _ in range(50):
        # One is sent, and as many have been claimed ahead.
        took_s = 2 * steps.size * letter_s
        assert took_s <= max(lease_s, 64 * letter_s)
        steps.took(steps.size, took_s)
    assert steps.size * 2 * letter_s <= max(lease_s / 2, 2 * letter_s)


def test_steps_grow_while_they_take_no_time():
    steps = Steps(120.0)
    first = steps.size
    steps.took(1, 0.0)
    assert steps.size > first
    steps.took(1_000, 3_600.0)
    assert steps.size == 8
    steps.took(1, 3_600.0)
    assert steps.size == 1


@given(st.floats(0.0, 59.0), st.floats(0.0, 0.01))
def test_steps_are_not_small_where_that_does_not_make_them_quick(step_s, letter_s):
    steps = Steps(120.0)
    first = steps.size
    for _ in range(50):
        steps.took(steps.size, step_s + steps.size * letter_s)
    assert steps.size >= first
