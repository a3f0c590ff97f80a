"""How many letters may go: the pace, the steps, the allowance, and the guard."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.model.operation import Counts, Guard, Orders, Pacing, Sending, SendingState
from celery_dlq.redrive.pacing import (
    STEP_S,
    Pace,
    Steps,
    allowance_of,
    canary_succeeded,
    judged,
    least_of,
    why_no_more,
    why_stop,
)


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self):
        self.now = 100.0

    def sleep(self, seconds):
        assert seconds > 0
        self.now += seconds


def paced(rate):
    clock = Clock()
    return Pace(rate, monotonic=lambda: clock.now), clock


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


@given(st.floats(1, 1_000), st.floats(0.1, 10_000))
def test_a_wait_for_something_else_is_not_made_up_for(rate, pause_s):
    pace, clock = paced(rate)
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


def test_the_first_goes_at_once():
    assert paced(0.001)[0].delay_s() == 0.0


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


OFF = Guard(enabled=False)


def size(counts, *, guard=OFF, for_s=0.0, **pacing):
    return allowance_of(Orders(pacing=Pacing(**pacing), guard=guard), counts, for_s).size


def test_without_limits_all_letters_left_may_go():
    assert size(Counts(planned=900, sent=100, skipped=50, sending=250)) == 500


def test_a_canary_goes_first_and_alone():
    assert size(Counts(planned=900), canary=5) == 5
    assert size(Counts(planned=900, sending=3), canary=5) == 2
    assert size(Counts(planned=900, sent=5), canary=5) == 0
    assert size(Counts(planned=900, succeeded=5), canary=5) == 895
    assert size(Counts(planned=900, succeeded=5), canary=5, guard=Guard()) == 15
    assert size(Counts(planned=3), canary=3) == 3


def test_letters_that_a_killed_process_left_behind_are_not_in_flight():
    left_behind = Counts(planned=900, sending=8, left_behind=6)
    assert (left_behind.unclaimed, left_behind.in_flight) == (898, 2)
    assert size(left_behind, canary=5) == 3
    assert size(left_behind, guard=Guard(window=7)) == 5


def test_no_more_of_a_canary_is_in_flight_than_was_ordered():
    assert size(Counts(planned=900), canary=5, max_in_flight=2) == 2
    assert size(Counts(planned=900, sent=1, sending=1), canary=5, max_in_flight=2) == 0
    assert size(Counts(planned=900, sent=1, succeeded=3), canary=5, max_in_flight=2) == 1


def test_a_skipped_letter_does_not_count_as_canary():
    assert size(Counts(planned=900, skipped=10, sent=3), canary=5) == 2


def test_the_guard_lets_few_letters_go_at_first_and_more_with_each_success():
    assert size(Counts(planned=900), guard=Guard()) == 10
    assert size(Counts(planned=900, sent=6, sending=3), guard=Guard()) == 1
    assert size(Counts(planned=900, sent=6, succeeded=4), guard=Guard()) == 8
    assert size(Counts(planned=900, sent=6, failed=4), guard=Guard()) == 4
    assert size(Counts(planned=900, succeeded=300), guard=Guard()) == 310


def test_no_more_than_the_window_goes_ahead():
    guard = Guard(window=100)
    assert size(Counts(planned=900, sent=60, succeeded=300), guard=guard) == 40
    assert size(Counts(planned=900), guard=Guard(window=3)) == 3


def test_while_no_outcome_comes_the_room_doubles_every_half_minute():
    """A task may run for hours, its worker may be off, and an outcome may never come."""
    sizes = [size(Counts(planned=900, sent=5), guard=Guard(), for_s=s) for s in (0, 30, 45, 60)]
    assert sizes == [5, 15, 23, 35]
    assert size(Counts(planned=900), guard=Guard(), for_s=1e9) == 500


def test_the_lowest_limit_counts():
    guard = Guard(window=100)
    assert size(Counts(planned=900, succeeded=90), guard=guard, max_in_flight=30) == 30
    assert size(Counts(planned=900), guard=guard, max_in_flight=30) == 10
    assert size(Counts(planned=900), max_in_flight=300) == 300


def test_messages_without_reported_outcomes_are_not_waited_for():
    assert size(Counts(planned=900, unknown=500), guard=Guard(window=100)) == 10


def test_the_allowance_says_why_it_waits():
    allowance = allowance_of(Orders(), Counts(planned=900, sent=500), 0.0)
    assert (allowance.size, allowance.waits_for) == (0, "outcomes (500 in flight)")
    allowance = allowance_of(Orders(pacing=Pacing(canary=5)), Counts(planned=900, sent=5), 0.0)
    assert (allowance.size, allowance.waits_for) == (0, "the canary")
    assert allowance_of(Orders(), Counts(planned=3), 0.0).waits_for == ""


numbers = st.integers(0, 400)
orders = st.builds(
    Orders,
    pacing=st.builds(
        Pacing, canary=st.integers(0, 50), max_in_flight=st.none() | st.integers(1, 100)
    ),
    guard=st.builds(
        Guard, enabled=st.booleans(), window=st.integers(1, 100), least=st.integers(1, 100)
    ),
)


@given(orders, st.integers(0, 2_000), st.randoms(use_true_random=False))
def test_an_operation_goes_to_its_end_and_is_never_too_far_ahead(orders, planned, random):
    """Letters of which some succeed and some are skipped, their outcomes late and in any number."""
    counts, canary = Counts(planned=planned), orders.pacing.canary
    for _ in range(20_000):
        allowance = allowance_of(orders, counts, 0.0)
        sent, succeeded, skipped = counts.sent, counts.succeeded, counts.skipped
        if not allowance.size and not sent:
            break
        taken = random.randint(0, allowance.size)
        lost = random.randint(0, min(taken, 3))
        ended = random.randint(0 if allowance.size else 1, sent) if sent else 0
        counts = Counts(
            planned=planned,
            sent=sent + taken - lost - ended,
            succeeded=succeeded + ended,
            skipped=skipped + lost,
        )
        if orders.guard.enabled:
            assert counts.sent <= max(min(orders.guard.window, 10 + counts.succeeded), canary)
    assert counts.left == 0


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
