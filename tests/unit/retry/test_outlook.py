from dataclasses import replace

from celery_dlq.retry import RetryPolicy
from celery_dlq.retry.outlook import LISTED, Planned, Span, outlook

POLICY = RetryPolicy(
    max_attempts=4, base=1.0, cap=3.0, jitter=True, window=60.0, retry_after_max=10.0
)


def test_the_waits_are_drawn_from_zero_and_add_up():
    assert list(outlook(POLICY)) == [
        Planned(1, Span(0, 0), Span(0, 0)),
        Planned(2, Span(0, 1), Span(0, 1)),
        Planned(3, Span(0, 2), Span(0, 3)),
        Planned(4, Span(0, 3), Span(0, 6)),
    ]


def test_without_jitter_they_are_the_bounds():
    assert list(outlook(replace(POLICY, jitter=False)))[-1] == Planned(4, Span(3, 3), Span(6, 6))
    fixed = list(outlook(replace(POLICY, fixed_delay=5.0)))
    assert fixed[-1] == Planned(4, Span(5, 5), Span(15, 15))


def test_attempts_that_cannot_start_within_the_window_are_not_listed():
    assert [item.number for item in outlook(replace(POLICY, fixed_delay=25.0))] == [1, 2, 3]


def test_without_a_last_attempt_the_first_are_listed():
    assert len(list(outlook(replace(POLICY, max_attempts=None)))) == LISTED
    assert len(list(outlook(replace(POLICY, max_attempts=500)))) == LISTED
    assert len(list(outlook(replace(POLICY, max_attempts=1)))) == 1
