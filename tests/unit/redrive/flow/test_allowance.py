from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.model.operation import Counts, Guard, Orders, Pacing
from celery_dlq.redrive.flow.allowance import allowance_of

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
