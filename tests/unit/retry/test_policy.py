from dataclasses import replace
from datetime import datetime, timedelta, timezone

from celery_dlq.retry import Exhausted, RetryPolicy, Wait

T0 = datetime(2026, 11, 21, tzinfo=timezone.utc)
POLICY = RetryPolicy(
    max_attempts=5, base=0.2, cap=30.0, jitter=True, window=60.0, retry_after_max=10.0,
    draw=lambda _low, high: high,
)  # fmt: skip


def after(attempt, policy=POLICY, elapsed=0.0, retry_after=None, **options):
    return policy.after(
        attempt,
        failed_at=T0 + timedelta(seconds=elapsed),
        first_failed_at=T0,
        retry_after=retry_after,
        **options,
    )


def test_waits_grow_until_the_attempts_are_used_up():
    assert [after(n) for n in (1, 2, 3, 4)] == [Wait(0.2), Wait(0.4), Wait(0.8), Wait(1.6)]
    assert after(5) == Exhausted("5 of 5 attempts used")


def test_without_a_limit_only_the_window_ends_it():
    endless = replace(POLICY, max_attempts=None)
    assert after(1_000, endless) == Wait(30.0)
    assert after(1_000, endless, elapsed=31) == Exhausted("the retry window of 60 s is used up")


def test_an_attempt_may_start_at_the_windows_very_end():
    fixed = replace(POLICY, fixed_delay=10.0)
    assert after(1, fixed, elapsed=50) == Wait(10.0)
    assert isinstance(after(1, fixed, elapsed=50.001), Exhausted)


def test_retry_after_is_a_lower_bound_that_jitter_is_added_to():
    assert after(1, retry_after=7.0) == Wait(7.2)
    assert after(1, retry_after=0.0) == Wait(0.2)


def test_a_retry_after_above_the_ceiling_is_not_waited_for():
    end = after(1, retry_after=10.5)
    assert isinstance(end, Exhausted)
    assert "dlq_retry_after_max" in end.why


def test_without_jitter_the_wait_is_the_ceiling():
    plain = replace(POLICY, jitter=False, draw=lambda low, high: 1 / 0)
    assert [after(n, plain) for n in (1, 2, 3)] == [Wait(0.2), Wait(0.4), Wait(0.8)]


def test_a_fixed_delay_replaces_the_backoff():
    assert after(4, replace(POLICY, fixed_delay=3.0)) == Wait(3.0)


def test_a_wait_that_was_asked_for_uses_up_no_attempt_but_the_window_ends_it():
    again = after(5, retry_after=7.0, uncounted=True)
    assert (again.free, round(again.delay_s, 6)) == (True, 10.2)
    assert after(90, replace(POLICY, cap=1.0), retry_after=7.0, uncounted=True).free
    end = after(90, elapsed=54, retry_after=7.0, uncounted=True)
    assert end == Exhausted("the retry window of 60 s is used up")


def test_runs_that_used_none_do_not_count():
    assert after(6, free=4) == Wait(0.4)
    assert after(9, free=4) == Exhausted("5 of 5 attempts used")
    assert after(3, free=3) == Wait(0.2)
