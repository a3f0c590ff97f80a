from __future__ import annotations

import json
from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st
from support.factories import T0

from celery_dlq.model.operation import (
    ENDED,
    MOVES,
    Checking,
    Counts,
    Guard,
    OperationState,
    Orders,
    Pacing,
    Repair,
    SendingState,
)


def test_every_state_has_its_row_and_can_be_reached():
    assert set(MOVES) == set(OperationState)
    reached = {target for targets in MOVES.values() for target in targets}
    assert reached == set(OperationState) - {OperationState.PLANNED}


def test_ended_operations_stay_and_others_can_be_cancelled():
    assert {OperationState.DONE, OperationState.CANCELLED, OperationState.ABORTED} == ENDED
    for state in set(OperationState) - ENDED:
        assert OperationState.CANCELLED in MOVES[state]


def test_only_what_runs_is_done():
    assert [state for state in MOVES if OperationState.DONE in MOVES[state]] == [
        OperationState.RUNNING
    ]


def test_every_sending_is_counted_by_its_state():
    assert {item.name for item in fields(Counts)} == {
        "planned", *SendingState, "unmarked", "left_behind",
    }  # fmt: skip


def test_letters_that_are_left_are_neither_sent_nor_skipped():
    counts = Counts(planned=20, sending=1, sent=2, succeeded=3, failed=4, unknown=5, skipped=1)
    assert (counts.out, counts.left) == (14, 5)
    assert Counts(planned=1, sent=2).left == 0


def test_letters_without_an_outcome_are_in_flight_once_they_are_claimed():
    counts = Counts(planned=20, sending=1, sent=2, succeeded=3, skipped=1)
    assert (counts.in_flight, counts.unclaimed) == (3, 13)
    assert Counts(planned=1, sending=2).unclaimed == 0


texts = st.text(max_size=5)
seconds = st.floats(0, 1e6)
orders = st.builds(
    Orders,
    pacing=st.builds(Pacing, rate=st.none() | seconds, canary=st.integers(0, 9)),
    guard=st.builds(Guard, enabled=st.booleans(), ratio=seconds),
    checking=st.builds(Checking, max_redrives=st.none() | st.integers(0), unless_release=texts),
    repair=st.builds(
        Repair,
        assignments=st.lists(texts, max_size=2).map(tuple),
        to_queue=st.none() | texts,
        eta=st.none() | st.just(T0),
    ),
)


def test_orders_that_the_store_has_from_release_1_0_are_read():
    checking = {"max_redrives": 5, "validate": True, "validate_timeout_s": 30.0}
    stored = {"pacing": {"rate": 5.0, "ramp_s": 60.0}, "checking": checking}
    kept = Orders(pacing=Pacing(rate=5.0), checking=Checking(max_redrives=5))
    assert Orders.from_dict(stored) == kept
    assert Orders.from_dict({}) == Orders()


@given(orders)
def test_orders_survive_json(given_orders):
    assert Orders.from_dict(json.loads(json.dumps(given_orders.to_dict()))) == given_orders
