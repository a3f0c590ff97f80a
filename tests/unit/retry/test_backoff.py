import math
import random

from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.retry.policy import ceiling, full_jitter

seconds = st.floats(min_value=0, max_value=1e6)


@given(st.integers(1, 10_000), seconds, seconds)
def test_a_wait_lies_between_zero_and_the_ceiling(attempt, base, cap):
    wait = full_jitter(attempt, base, cap, random.uniform)
    assert 0.0 <= wait <= ceiling(attempt, base, cap) <= cap


@given(st.integers(1, 10_000), seconds, seconds)
def test_the_ceiling_never_falls_and_never_passes_the_cap(attempt, base, cap):
    assert ceiling(attempt, base, cap) <= ceiling(attempt + 1, base, cap) <= cap


@given(st.integers(1, 30), st.floats(0.001, 10))
def test_below_the_cap_the_ceiling_doubles(attempt, base):
    assert math.isclose(ceiling(attempt + 1, base, math.inf), 2 * ceiling(attempt, base, math.inf))


def test_the_defaults_give_the_documented_ceilings():
    assert [ceiling(n, 0.2, 30.0) for n in range(1, 10)] == [
        0.2,
        0.4,
        0.8,
        1.6,
        3.2,
        6.4,
        12.8,
        25.6,
        30.0,
    ]


def test_the_draw_is_uniform_over_the_whole_interval():
    drawn = []

    def uniform(low, high):
        drawn.append((low, high))
        return high

    assert full_jitter(3, 0.2, 30.0, uniform) == 0.8
    assert drawn == [(0.0, 0.8)]
