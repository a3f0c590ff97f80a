import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.redrive.pace import Pace


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self):
        self.now = 100.0

    def sleep(self, seconds):
        assert seconds > 0
        self.now += seconds


def paced(rate, clock=None):
    clock = clock or Clock()
    return Pace(rate, monotonic=lambda: clock.now, sleep=clock.sleep), clock


def test_without_a_rate_nothing_waits():
    pace, clock = paced(None)
    assert pace.batch_size(500) == 500
    for _ in range(10):
        pace.wait_before(500)
    assert clock.now == 100.0


@given(st.floats(0.5, 5_000), st.integers(1, 2_000))
def test_the_rate_is_kept_over_any_stretch(rate, total):
    pace, clock = paced(rate)
    sent = 0
    while sent < total:
        size = min(pace.batch_size(500), total - sent)
        pace.wait_before(size)
        sent += size
        # Never ahead of the rate by more than the step just sent.
        assert sent - size <= (clock.now - 100.0) * rate + 1e-6


def test_a_slow_publisher_is_not_slowed_further():
    pace, clock = paced(10)
    pace.wait_before(1)
    clock.now += 60
    before = clock.now
    pace.wait_before(1)
    assert clock.now == before


def test_steps_are_short_even_at_low_rates():
    assert paced(50)[0].batch_size(500) == 12
    assert paced(1)[0].batch_size(500) == 1
    assert paced(100_000)[0].batch_size(500) == 500


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_rate_must_be_above_zero(rate):
    with pytest.raises(ValueError, match="above zero"):
        paced(rate)
