"""The attempts of a policy, and the outages that exhaust tasks: against the policy's own decisions, and
against values that are known, to a hundredth of the tasks."""

import random
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from celery_dlq.retry import Exhausted, RetryPolicy
from celery_dlq.retry.outlook import (
    LISTED,
    Planned,
    Span,
    exhausts_all,
    last_starts,
    outlook,
)
from celery_dlq.settings import Settings

SHORT = RetryPolicy(
    max_attempts=5, base=0.2, cap=60.0, jitter=True, window=3_600.0, retry_after_max=600.0
)
SETTINGS = Settings()
DEFAULT = RetryPolicy(
    max_attempts=SETTINGS.max_attempts, base=SETTINGS.retry_base, cap=SETTINGS.retry_cap, jitter=True,
    window=SETTINGS.retry_window, retry_after_max=SETTINGS.retry_after_max,
)  # fmt: skip
FEW = RetryPolicy(max_attempts=4, base=1.0, cap=3.0, jitter=True, window=60.0, retry_after_max=10.0)
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def test_the_waits_are_drawn_from_zero_and_add_up():
    assert list(outlook(FEW)) == [
        Planned(1, Span(0, 0), Span(0, 0)),
        Planned(2, Span(0, 1), Span(0, 1)),
        Planned(3, Span(0, 2), Span(0, 3)),
        Planned(4, Span(0, 3), Span(0, 6)),
    ]


def test_without_jitter_they_are_the_bounds():
    assert list(outlook(replace(FEW, jitter=False)))[-1] == Planned(4, Span(3, 3), Span(6, 6))
    fixed = list(outlook(replace(FEW, fixed_delay=5.0)))
    assert fixed[-1] == Planned(4, Span(5, 5), Span(15, 15))


def test_attempts_that_cannot_start_within_the_window_are_not_listed():
    assert [item.number for item in outlook(replace(FEW, fixed_delay=25.0))] == [1, 2, 3]


def test_without_a_last_attempt_the_first_are_listed():
    assert len(list(outlook(replace(FEW, max_attempts=None)))) == LISTED
    assert len(list(outlook(replace(FEW, max_attempts=500)))) == LISTED
    assert len(list(outlook(replace(FEW, max_attempts=1)))) == 1


def exhausted_share(policy, outage_s):
    ends = last_starts(policy)
    return sum(end <= outage_s for end in ends) / len(ends)


def exhausts_share(policy, share):
    ends = last_starts(policy)
    return ends[int(share * len(ends))]


def drawn_share(policy, outage_s, tasks=20_000):
    """The exhausted share of many tried tasks: the policy itself decides about each failure."""
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


def test_the_defaults_outlast_a_restart_and_most_of_two_minutes():
    """The defaults were those of ``SHORT`` once: every restart of a database made letters."""
    shares = [exhausted_share(SHORT, outage_s) for outage_s in (1.5, 30, 120)]
    assert shares == pytest.approx([0.5, 1.0, 1.0], abs=0.01)
    assert exhausted_share(DEFAULT, 30) < 0.001
    assert exhausted_share(DEFAULT, 120) == pytest.approx(0.057, abs=0.01)  # less than a third
    assert drawn_share(DEFAULT, 120) == pytest.approx(0.057, abs=0.01)


def test_with_fewer_attempts_two_minutes_would_exhaust_too_many():
    fewer = replace(DEFAULT, max_attempts=DEFAULT.max_attempts - 1)
    assert exhausted_share(fewer, 120) == pytest.approx(0.445, abs=0.01)


def test_the_defaults_give_up_after_minutes():
    """A failure that never passes: how long until it is a letter, for half, and for 99 of 100."""
    before = [exhausts_share(SHORT, share) for share in (0.5, 0.99)]
    now = [exhausts_share(DEFAULT, share) for share in (0.5, 0.99)]
    assert before == pytest.approx([1.5, 2.598], rel=0.01)
    assert now == pytest.approx([255.0, 431.156], rel=0.01)
    assert exhausts_all(DEFAULT) == 510.0 < DEFAULT.window


def test_the_defaults_wait_in_the_store_rather_than_in_a_worker():
    """A worker keeps a message for at most ``dlq_park_after``, and for 80 s of its 255 s in all."""
    draw, held, parked = random.Random(7).uniform, 0.0, 0
    for attempt in range(1, DEFAULT.max_attempts):
        for _ in range(10_000):
            wait = replace(DEFAULT, draw=draw).backoff(attempt)
            held += wait if wait <= SETTINGS.park_after else 0.0
            parked += wait > SETTINGS.park_after
    assert held / 10_000 == pytest.approx(80, abs=1)
    assert parked / 10_000 == pytest.approx(1.36, abs=0.02)


@pytest.mark.parametrize("outage_s", [0.3, 0.5, 1.0, 1.5, 2.4])
def test_a_schedule_is_as_when_it_is_drawn(outage_s):
    assert exhausted_share(SHORT, outage_s) == pytest.approx(drawn_share(SHORT, outage_s), abs=0.01)


@pytest.mark.parametrize("outage_s", [0.0, 3.0, 8.0, 9.9, 10.0])
@pytest.mark.parametrize("changes", [
    {"window": 10.0, "base": 4.0}, {"window": 10.0, "base": 15.0}, {"window": 10.0, "base": 2.0},
    {"window": 10.0, "base": 1.0, "cap": 5.0, "max_attempts": 8},
])  # fmt: skip
def test_so_are_schedules_that_the_window_cuts_off(changes, outage_s):
    policy = replace(SHORT, **changes)
    assert exhausted_share(policy, outage_s) == pytest.approx(
        drawn_share(policy, outage_s), abs=0.012
    )


def test_half_is_gone_halfway_by_symmetry():
    assert exhausted_share(SHORT, 1.5) == pytest.approx(0.5, abs=0.01)
    assert exhausts_all(SHORT) == pytest.approx(3.0)
    assert exhausted_share(SHORT, 3.0) == 1.0


def test_the_figures_are_the_same_each_time():
    assert last_starts(DEFAULT) == last_starts(DEFAULT)


def test_without_chance_all_are_gone_at_once():
    stubborn = replace(SHORT, jitter=False)
    assert exhausts_share(stubborn, 0.01) == exhausts_all(stubborn) == pytest.approx(3.0)
    assert (exhausted_share(stubborn, 2.9), exhausted_share(stubborn, 3.1)) == (0.0, 1.0)
    fixed = replace(SHORT, fixed_delay=30.0, window=100.0)
    assert exhausts_all(fixed) == 90.0


def test_the_window_ends_what_has_no_last_attempt():
    endless = replace(SHORT, max_attempts=None)
    assert exhausts_all(endless) == 3_600.0
    assert last_starts(endless) is None


def test_many_attempts_are_not_simulated():
    most = replace(SHORT, max_attempts=LISTED)
    assert exhausts_share(most, 0.5) == pytest.approx(exhausts_all(most) / 2, rel=0.01)
    assert last_starts(replace(most, max_attempts=LISTED + 1)) is None


def test_without_waits_or_retries_the_first_failure_decides():
    assert exhausts_all(replace(SHORT, base=0.0)) == 0.0
    assert exhausted_share(replace(SHORT, base=0.0), 0.0) == 1.0
    once = replace(SHORT, max_attempts=1)
    assert (exhausts_all(once), exhausts_share(once, 0.5)) == (0.0, 0.0)
