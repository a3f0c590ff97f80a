from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from factories import T0, letter, operation
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from celery_dlq.errors import OperationError, UnknownOperation
from celery_dlq.operation import (
    ENDED,
    MOVES,
    Checking,
    Counts,
    OperationState,
    Orders,
    Pacing,
    Repair,
)
from celery_dlq.states import Reason, State
from celery_dlq.store.base import Filter

PLANNED, RUNNING, PAUSED, DONE, CANCELLED, ABORTED = OperationState
STATES = st.sampled_from(OperationState)


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def move(store, to: OperationState, at: float = 1, cause: str = "", operation_id="0a1b2c3d4e5f"):
    return store.move_operation(operation_id, to, who="bob", cause=cause, now=minutes(at))


def acts(store) -> list[tuple[str, str, int]]:
    return [(row.act, row.who, row.count) for row in reversed(store.audit().rows)]


def test_an_operation_comes_back_as_it_was_written(store):
    made = operation(
        wanted=Filter(
            ids=("a", "\ud800"), task="shop.charge", states=frozenset({State.DEAD, State.REDRIVEN}),
            without_reasons=frozenset({Reason.MALFORMED}), until=minutes(90),
        ),
        orders=Orders(
            pacing=Pacing(rate=50.0, canary=5),
            checking=Checking(max_redrives=None),
            repair=Repair(assignments=("kwargs.currency=\"USD\"",), eta=minutes(3)),
        ),
        counts=Counts(planned=70_000), detached=True, cause="\x00odd",
    )  # fmt: skip
    store.create_operation(made)
    assert store.operation(made.id) == replace(made, cause="\\u0000odd")
    assert store.operation("000000000000") is None


def test_one_written_twice_is_there_once(store):
    store.create_operation(operation())
    store.create_operation(operation())
    assert len(store.operations()) == 1
    assert acts(store) == [("redrive", "ann", 3)]


def test_ids_are_matched_by_their_beginning(store):
    for name in ("aa1", "aa2", "ab1"):
        store.create_operation(operation(name))
    assert store.match_operations("aa") == ["aa1", "aa2"]
    assert store.match_operations("a", limit=1) == ["aa1"]
    assert store.match_operations("b") == []


def test_the_newest_are_listed_first_and_by_state(store):
    for number in range(3):
        store.create_operation(operation(f"{number}", created_at=minutes(number)))
    move(store, RUNNING, operation_id="1")
    assert [found.id for found in store.operations()] == ["2", "1", "0"]
    assert [found.id for found in store.operations(limit=1)] == ["2"]
    assert [found.id for found in store.operations(states=frozenset({RUNNING}))] == ["1"]
    assert store.operations(states=ENDED) == []


def test_a_life_with_a_pause(store):
    store.create_operation(operation())
    assert move(store, RUNNING, 1).started_at == minutes(1)
    paused = move(store, PAUSED, 2, "lunch")
    assert (paused.state, paused.cause, paused.ended_at) == (PAUSED, "lunch", None)
    resumed = move(store, RUNNING, 3)
    assert (resumed.state, resumed.cause, resumed.started_at) == (RUNNING, "", minutes(1))
    done = move(store, DONE, 4)
    assert (done.state, done.ended_at) == (DONE, minutes(4))
    assert store.operation(done.id) == done
    assert acts(store) == [("redrive", "ann", 3), ("pause", "bob", 3), ("resume", "bob", 3)]


@pytest.mark.parametrize(("to", "act"), [(CANCELLED, "cancel"), (ABORTED, "abort")])
def test_its_end_is_audited_with_the_cause(store, to, act):
    store.create_operation(operation())
    assert move(store, to, 5, "ten in a row").ended_at == minutes(5)
    newest = store.audit().rows[0]
    assert (newest.act, newest.who, newest.why, newest.at) == (
        act,
        "bob",
        "ten in a row",
        minutes(5),
    )
    assert newest.detail == {"operation": "0a1b2c3d4e5f"}


def test_moved_where_it_is_it_stays_as_it_is(store):
    store.create_operation(operation())
    move(store, RUNNING)
    first = move(store, PAUSED, 2, "lunch")
    assert move(store, PAUSED, 3, "dinner") == first
    assert [act for act, _, _ in acts(store)] == ["redrive", "pause"]


def test_there_is_none_to_move(store):
    with pytest.raises(UnknownOperation, match="operations list"):
        move(store, RUNNING)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STATES, max_size=6))
def test_only_the_moves_of_the_table_are_made(emptied, steps):
    store = emptied()
    store.create_operation(operation())
    state = PLANNED
    for number, to in enumerate(steps):
        if to is state or to in MOVES[state]:
            state = to
            assert move(store, to, number).state is to
        else:
            with pytest.raises(OperationError, match=rf"is {state.value} and cannot become"):
                move(store, to, number)
        found = store.operation("0a1b2c3d4e5f")
        assert found.state is state
        assert (found.ended_at is not None) == (state in ENDED)


def test_of_two_who_end_it_at_once_one_does(store):
    store.create_operation(operation())
    move(store, RUNNING)

    def end(to):
        try:
            return move(store, to).state
        except OperationError:
            return None

    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(end, (DONE, CANCELLED)))
    assert sorted(ended, key=str).count(None) == 1
    assert store.operation("0a1b2c3d4e5f").state in ended


def test_counts_are_those_of_the_sendings(store):
    store.save([letter(name) for name in "abc"])
    made = operation()
    store.create_operation(made)
    store.create_operation(operation("other"))
    store.claim_for(made, token="t", lease_until=minutes(9), limit=3, now=minutes(1))
    store.confirm_sendings(made.id, "t", {"a": ""}, now=minutes(2))
    store.skip_sendings(made.id, "t", {"b": "too old"}, now=minutes(2))
    counts = Counts(planned=3, sending=1, sent=1, skipped=1)
    assert store.operation(made.id).counts == counts
    assert {found.id: found.counts for found in store.operations()} == {
        made.id: counts, "other": Counts(planned=3),
    }  # fmt: skip
    move(store, CANCELLED)
    assert acts(store)[-1] == ("cancel", "bob", 1)
