"""Shares of tasks that an outage exhausts: against drawn schedules, and against what is known beforehand."""

import random
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from celery_dlq.retry import Exhausted, RetryPolicy
from celery_dlq.retry.outage import MOST, exhausted_share, exhausts_all, exhausts_share

DEFAULT = RetryPolicy(
    max_attempts=5, base=0.2, cap=60.0, jitter=True, window=3_600.0, retry_after_max=600.0
)
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def drawn_share(policy, outage_s, tasks=20_000):
    """The same by trying: the policy itself decides about each failure."""
    exhausted, draw = 0, random.Random(7).uniform
    policy = replace(policy, draw=draw)
    for _ in range(tasks):
        now, attempt = 0.0, 1
        while now <= outage_s:
            failed_at = NOON + timedelta(seconds=now)
            step = policy.after(attempt, failed_at=failed_at, first_failed_at=NOON)
            if isinstance(step, Exhausted):
                exhausted += 1
                break
            now, attempt = now + step.delay_s, attempt + 1
    return exhausted / tasks


@pytest.mark.parametrize("outage_s", [0.3, 0.5, 1.0, 1.5, 2.4])
def test_the_defaults_are_as_when_they_are_drawn(outage_s):
    assert exhausted_share(DEFAULT, outage_s) == pytest.approx(
        drawn_share(DEFAULT, outage_s), abs=0.01
    )


@pytest.mark.parametrize("outage_s", [0.0, 3.0, 8.0, 9.9, 10.0])
@pytest.mark.parametrize("changes", [
    {"window": 10.0, "base": 4.0}, {"window": 10.0, "base": 15.0}, {"window": 10.0, "base": 2.0},
    {"window": 10.0, "base": 1.0, "cap": 5.0, "max_attempts": 8},
])  # fmt: skip
def test_so_are_schedules_that_the_window_cuts_off(changes, outage_s):
    policy = replace(DEFAULT, **changes)
    assert exhausted_share(policy, outage_s) == pytest.approx(
        drawn_share(policy, outage_s), abs=0.012
    )


def test_half_of_the_defaults_is_gone_halfway_by_symmetry():
    assert exhausts_share(DEFAULT, 0.5) == pytest.approx(1.5, abs=0.001)
    assert exhausted_share(DEFAULT, 1.5) == pytest.approx(0.5, abs=1e-12)
    assert exhausts_all(DEFAULT) == pytest.approx(3.0)
    assert exhausted_share(DEFAULT, 3.0) == 1.0


def test_one_of_a_hundred_is_gone_in_less_than_half_a_second():
    few_s = exhausts_share(DEFAULT, 0.01)
    assert 0.3 < few_s < 0.5
    assert exhausted_share(DEFAULT, few_s) == pytest.approx(0.01, abs=1e-4)


def test_without_chance_all_are_gone_at_once():
    stubborn = replace(DEFAULT, jitter=False)
    assert exhausts_share(stubborn, 0.01) == exhausts_all(stubborn) == pytest.approx(3.0)
    assert (exhausted_share(stubborn, 2.9), exhausted_share(stubborn, 3.1)) == (0.0, 1.0)
    fixed = replace(DEFAULT, fixed_delay=30.0, window=100.0)
    assert exhausts_all(fixed) == 90.0


def test_the_window_ends_what_has_no_last_attempt():
    endless = replace(DEFAULT, max_attempts=None)
    assert exhausts_all(endless) == 3_600.0
    assert exhausts_share(endless, 0.5) is None
    with pytest.raises(ValueError, match="no last attempt"):
        exhausted_share(endless, 1.0)


def test_many_attempts_are_told_exactly_or_not_at_all():
    most = replace(DEFAULT, max_attempts=MOST)
    half_s = exhausts_share(most, 0.5)
    assert half_s == pytest.approx(exhausts_all(most) / 2, abs=0.001)
    assert exhausts_share(replace(most, max_attempts=MOST + 1), 0.5) is None


def test_without_waits_or_retries_the_first_failure_decides():
    assert exhausts_all(replace(DEFAULT, base=0.0)) == 0.0
    assert exhausted_share(replace(DEFAULT, base=0.0), 0.0) == 1.0
    once = replace(DEFAULT, max_attempts=1)
    assert (exhausts_all(once), exhausts_share(once, 0.5)) == (0.0, 0.0)
