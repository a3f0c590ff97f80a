from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta, timezone

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event
from support.factories import T0, attempt, letter, operation

from celery_dlq.errors import OperationError, UnknownOperation
from celery_dlq.model.letter import Outcome
from celery_dlq.model.operation import (
    ENDED,
    MOVES,
    Checking,
    Counts,
    OperationState,
    Orders,
    Pacing,
    Repair,
)
from celery_dlq.model.states import Reason, State
from celery_dlq.store.base import Filter
from celery_dlq.store.database import clock
from celery_dlq.store.sql import SQLStore

PLANNED, RUNNING, PAUSED, DONE, CANCELLED, ABORTED = OperationState
STATES = st.sampled_from(OperationState)


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def move(store, to: OperationState, at: float = 1, cause: str = "", operation_id="0a1b2c3d4e5f"):
    return store.operations.move(operation_id, to, who="bob", cause=cause, now=minutes(at))


def test_an_act_ends_with_the_letters_that_are_there(store):
    store.letters.save([letter("a"), letter("b", attempt(minutes=3))])
    assert store.until_now(Filter(), now=minutes(5)) == minutes(5)


def test_it_includes_letters_of_a_worker_whose_clock_is_ahead(store):
    ahead, other = attempt(minutes=15), attempt(minutes=99)
    store.letters.save([letter("a"), letter("b", ahead), letter("c", other, task="shop.mail")])
    store.closing.discard(Filter(ids=("a",)), who="ann", why="x", now=minutes(5))
    wanted = Filter(task="shop.charge")
    ends = store.until_now(wanted, now=minutes(5))
    assert minutes(15) < ends < minutes(16)
    found = store.letters.find(wanted.before(ends)).letters
    assert [one.task_id for one in found] == ["b"]
    # A bound that the filter has stays.
    assert wanted.before(ends).before(minutes(7)).until == minutes(7)


def test_the_stores_time_is_that_of_its_database(store):
    def asked(connection):
        return clock.now(connection)

    before = store.database.read(asked)
    assert before - timedelta(seconds=1) < store.now()
    assert store.now() < store.database.read(asked) + timedelta(seconds=1)
    assert store.now().tzinfo is timezone.utc
    # The servers of the tests run on this machine.
    assert abs(store.clock_ahead()) < timedelta(seconds=2)


def acts(store) -> list[tuple[str, str, int]]:
    return [(row.act, row.who, row.count) for row in reversed(store.audit.find().rows)]


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
    store.operations.create(made)
    assert store.operations.get(made.id) == replace(made, cause="\\u0000odd")
    assert store.operations.get("000000000000") is None


def test_one_written_twice_is_there_once(store):
    store.operations.create(operation())
    store.operations.create(operation())
    assert len(store.operations.find()) == 1
    assert acts(store) == [("redrive", "ann", 0)]


def test_ids_are_matched_by_their_beginning(store):
    for name in ("aa1", "aa2", "ab1"):
        store.operations.create(operation(name))
    assert store.operations.match("aa") == ["aa1", "aa2"]
    assert store.operations.match("a", limit=1) == ["aa1"]
    assert store.operations.match("b") == []


def test_the_newest_are_listed_first_and_by_state(store):
    for number in range(3):
        store.operations.create(operation(f"{number}", created_at=minutes(number)))
    move(store, RUNNING, operation_id="1")
    assert [found.id for found in store.operations.find()] == ["2", "1", "0"]
    assert [found.id for found in store.operations.find(limit=1)] == ["2"]
    assert [found.id for found in store.operations.find(states=frozenset({RUNNING}))] == ["1"]
    assert store.operations.find(states=ENDED) == []
    assert [found.id for found in store.operations.find(since=minutes(1))] == ["2", "1"]
    assert [found.id for found in store.operations.find(since=minutes(1), limit=1)] == ["2"]


def test_a_life_with_a_pause(store):
    store.operations.create(operation())
    assert move(store, RUNNING, 1).started_at == minutes(1)
    paused = move(store, PAUSED, 2, "lunch")
    assert (paused.state, paused.cause, paused.ended_at) == (PAUSED, "lunch", None)
    resumed = move(store, RUNNING, 3)
    assert (resumed.state, resumed.cause, resumed.started_at) == (RUNNING, "", minutes(1))
    done = move(store, DONE, 4)
    assert (done.state, done.ended_at) == (DONE, minutes(4))
    assert store.operations.get(done.id) == done
    assert acts(store) == [("redrive", "ann", 0), ("pause", "bob", 3), ("resume", "bob", 3)]


@pytest.mark.parametrize(("to", "act"), [(CANCELLED, "cancel"), (ABORTED, "abort")])
def test_its_end_is_audited_with_the_cause(store, to, act):
    store.operations.create(operation())
    assert move(store, to, 5, "ten in a row").ended_at == minutes(5)
    newest = store.audit.find().rows[0]
    assert (newest.act, newest.who, newest.why, newest.at) == (
        act,
        "bob",
        "ten in a row",
        minutes(5),
    )
    assert newest.detail == {"operation": "0a1b2c3d4e5f"}


def test_a_move_to_its_own_state_changes_nothing(store):
    store.operations.create(operation())
    move(store, RUNNING)
    first = move(store, PAUSED, 2, "lunch")
    assert move(store, PAUSED, 3, "dinner") == first
    assert [act for act, _, _ in acts(store)] == ["redrive", "pause"]


def test_an_unknown_operation_cannot_be_moved(store):
    with pytest.raises(UnknownOperation, match="operations list"):
        move(store, RUNNING)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STATES, max_size=6))
def test_only_the_moves_of_the_table_are_made(emptied, steps):
    store = emptied()
    store.operations.create(operation())
    state = PLANNED
    for number, to in enumerate(steps):
        if to is state or to in MOVES[state]:
            state = to
            assert move(store, to, number).state is to
        else:
            with pytest.raises(OperationError, match=rf"is {state.value} and cannot become"):
                move(store, to, number)
        found = store.operations.get("0a1b2c3d4e5f")
        assert found.state is state
        assert (found.ended_at is not None) == (state in ENDED)


@pytest.mark.on_servers
def test_one_of_two_that_end_it_at_once_does(store):
    store.operations.create(operation())
    move(store, RUNNING)

    def end(to):
        try:
            return move(store, to).state
        except OperationError:
            return None

    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(end, (DONE, CANCELLED)))
    assert sorted(ended, key=str).count(None) == 1
    assert store.operations.get("0a1b2c3d4e5f").state in ended


def test_counts_are_those_of_the_sendings(store):
    store.letters.save([letter(name) for name in "abc"])
    made = operation()
    store.operations.create(made)
    store.operations.create(operation("other"))
    store.claims.take(made, token="t", lease_until=minutes(9), limit=3, now=minutes(1))
    store.claims.confirm(made.id, "t", {"a": ""}, now=minutes(2))
    store.claims.skip(made.id, "t", {"b": "too old"}, now=minutes(2))
    counts = Counts(planned=3, sending=1, sent=1, skipped=1)
    assert store.operations.get(made.id).counts == counts
    assert {found.id: found.counts for found in store.operations.find()} == {
        made.id: counts, "other": Counts(planned=3),
    }  # fmt: skip
    move(store, CANCELLED)
    assert acts(store)[-1] == ("cancel", "bob", 1)


def test_an_outcome_before_the_mark_is_counted_once(store):
    store.letters.save([letter(name) for name in "abc"])
    made = operation()
    store.operations.create(made)
    store.claims.take(made, token="t", lease_until=minutes(9), limit=3, now=minutes(1))
    ended = [Outcome(task_id=name, redrive=1, succeeded_at=minutes(2), worker="w") for name in "ab"]
    store.letters.record_outcomes(ended)
    found = store.operations.get(made.id).counts
    assert found == Counts(planned=3, sending=1, succeeded=2, unmarked=2)
    assert (found.out, found.left, found.in_flight) == (2, 1, 1)
    store.claims.confirm(made.id, "t", dict.fromkeys("abc", ""), now=minutes(3), is_all=True)
    assert store.operations.get(made.id).counts == Counts(planned=3, sent=1, succeeded=2)


def test_counts_and_claims_are_of_one_moment(store):
    """A claim that is made between two statements would be subtracted from counts that are without it."""
    store.letters.save([letter(name) for name in "abc"])
    made = operation()
    store.operations.create(made)
    store.claims.take(made, token="t", lease_until=minutes(9), limit=2, now=minutes(1))
    store.claims.confirm(made.id, "t", {"a": "", "b": ""}, now=minutes(2), is_all=True)
    claimed, other = [], SQLStore(store.database.url.render_as_string(hide_password=False))

    def claim_once(*_statement):
        if not claimed:
            claimed.append("c")
            other.claims.take(made, token="u", lease_until=minutes(9), limit=1, now=minutes(3))

    def after(connection, cursor, statement, *_rest):
        if "celery_dead_letter_redrive" in statement:
            claim_once()

    event.listen(store.database.engine, "after_cursor_execute", after)
    try:
        found = store.operations.get(made.id).counts
    finally:
        event.remove(store.database.engine, "after_cursor_execute", after)
        other.close()
    assert claimed
    assert found == Counts(planned=3, sent=2)
    assert store.operations.get(made.id).counts == Counts(planned=3, sent=2, sending=1)
