from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.model.operation import Counts, Guard, Sending, SendingState
from celery_dlq.redrive.flow.guard import (
    canary_succeeded,
    judged,
    least_of,
    why_no_more,
    why_stop,
)

GUARD = Guard()


def endings(text, fingerprints=None):
    """Newest end first: ``.`` succeeded, any letter is the fingerprint of a failure."""
    return [
        Sending(
            operation="op", task_id=f"id{number}", task="shop.charge", redrive=1,
            state=SendingState.SUCCEEDED if sign == "." else SendingState.FAILED,
            why="" if sign == "." else f"ValueError: {sign}",
            fingerprint="" if sign == "." else sign * 4,
        )
        for number, sign in enumerate(text)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "a" * 10 + "." * 90,
            "10 in a row came back: ValueError: a (group aaaa); letters id0, id1",
        ),
        ("a...." * 4, "4 of the last 20 came back"),
        # At least 4 of the first 20 have failed, whatever the others will do.
        ("aab.a", "4 of the last 5 came back"),
        ("aab..", None),
        ("ab..." * 4 + "." * 4, "8 of the last 24 came back: 4 times ValueError: a"),
        ("a" + "." * 9 + "b" + "." * 8, None),
        ("a" * 9 + "." * 91, None),
        ("", None),
        ("a", None),
        ("." * 500, None),
        # A small share of all, but always the same failure: its cause is not fixed.
        (("a" + "." * 24) * 20, "20 of the last 500 came back the same way"),
        (("a" + "." * 24 + "b" + "." * 24) * 10, None),
    ],
)
def test_it_stops_when_letters_come_back(text, says):
    cause = why_stop(GUARD, endings(text))
    assert (says in cause) if says else cause is None


def test_the_cause_names_failures_and_the_first_letters():
    cause = why_stop(Guard(in_a_row=5), endings("ababa"))
    assert cause == (
        "5 in a row came back: 3 times ValueError: a (group aaaa); letters id0, id1, id2 and 2 more"
    )


def test_a_disabled_guard_never_stops():
    assert why_stop(Guard(enabled=False), endings("a" * 500)) is None


guards = st.builds(
    Guard,
    window=st.integers(1, 60),
    ratio=st.floats(0.01, 1.0),
    least=st.integers(1, 60),
    in_a_row=st.integers(1, 60),
)
histories = st.text(".ab", max_size=120)


@given(guards, histories)
def test_it_stops_exactly_when_one_of_its_three_measures_is_full(guard, text):
    window = text[: guard.window]
    failed = len(window) - window.count(".")
    most = max((Counter(window) - Counter("." * len(window))).values(), default=0)
    expected = (
        (len(text) >= guard.in_a_row and "." not in text[: guard.in_a_row])
        or failed >= guard.ratio * max(len(window), least_of(guard))
        or most >= least_of(guard)
    )
    assert (why_stop(guard, endings(text)) is not None) == expected


@given(guards, st.integers(0, 200))
def test_successes_alone_never_stop_it(guard, number):
    assert why_stop(guard, endings("." * number)) is None


@given(guards, st.integers(0, 300), st.integers(0, 300), st.integers(0, 50))
def test_the_canary_is_not_judged_with_the_others(guard, succeeded, failed, canary):
    number = judged(guard, Counts(succeeded=succeeded, failed=failed), canary)
    assert 0 <= number <= max(0, succeeded + failed - canary)
    assert number <= max(guard.window, guard.in_a_row)


class TestCanary:
    def test_goes_on_only_when_all_have_succeeded(self):
        assert not canary_succeeded(3, Counts(planned=9, sent=3))
        assert not canary_succeeded(3, Counts(planned=9, sent=1, succeeded=2))
        assert canary_succeeded(3, Counts(planned=9, succeeded=3))

    def test_is_over_once_more_letters_were_sent(self):
        counts = Counts(planned=9, succeeded=3, failed=1)
        assert canary_succeeded(3, counts)
        assert why_no_more(3, counts, endings("a...")) is None

    def test_one_failure_is_enough(self):
        counts = Counts(planned=9, sent=2, failed=1)
        assert why_no_more(3, counts, endings("a")) == (
            "the canary failed: ValueError: a (group aaaa); letters id0"
        )

    def test_a_missing_outcome_is_not_a_success(self):
        counts = Counts(planned=9, succeeded=2, unknown=1)
        assert "no outcome" in why_no_more(3, counts, endings(".."))

    def test_without_a_canary_letters_may_go(self):
        assert canary_succeeded(0, Counts(planned=9))
        assert why_no_more(0, Counts(planned=9), []) is None
