"""Processes that carry one operation take turns: one after the other learns how many letters it may claim."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from support.factories import T0, attempt, letter, operation

from celery_dlq.errors import OperationError, UnknownOperation
from celery_dlq.model.operation import OperationState, Orders, Pacing
from celery_dlq.store.base import Allotment, Turn

PATIENCE_S = 60
NOW, SOON = T0 + timedelta(minutes=30), T0 + timedelta(minutes=32)
SHARED = operation(
    "one", orders=Orders(pacing=Pacing(processes=3)), state=OperationState.RUNNING, detached=True
)


@pytest.fixture
def shared(store):
    """Letters a, b and c, of an operation that is running."""
    store.letters.save([letter(task_id, attempt(minutes=at)) for at, task_id in enumerate("abc")])
    store.operations.create(SHARED)
    for name, holder in zip(SHARED.lease_names, ("first", "second"), strict=False):
        assert store.leases.take(name, holder=holder, seconds=600)
    return store


def turn(store, token="t", size=2, *, holder="first", now=NOW, paced_from=None) -> Turn:
    asked, _ = store.turns.take(
        SHARED, token=token, holder=holder, lease_until=now + timedelta(minutes=2), now=now,
        decide=lambda _: Allotment(size=size, paced_from=paced_from),
    )  # fmt: skip
    return asked


def claim(store, token="t", size=2, now=NOW) -> list[str]:
    claimed = store.claims.take(
        SHARED, token=token, lease_until=now + timedelta(minutes=2), limit=size, now=now,
        is_reserved=True,
    )  # fmt: skip
    return [one.task_id for one in claimed.letters]


def counts(store):
    return store.operations.get("one").counts


def test_a_turn_tells_what_was_allotted_before(shared):
    assert turn(shared, paced_from=T0) == Turn(
        state=OperationState.RUNNING, allotted=0, paced_from=None, is_idle=True
    )
    assert turn(shared, "u", 0, holder="second") == Turn(
        state=OperationState.RUNNING, allotted=2, paced_from=T0, is_idle=False
    )
    assert shared.operations.get("one").allotted == 2


def test_letters_that_are_allotted_are_in_hand_before_they_are_claimed(shared):
    turn(shared)
    assert (counts(shared).sending, counts(shared).in_hand, counts(shared).unclaimed) == (2, 2, 1)
    assert claim(shared) == ["a", "b"]
    assert (counts(shared).sending, counts(shared).unclaimed) == (2, 1)
    shared.claims.end("one", "t", {"a": "", "b": ""}, now=NOW)
    assert (counts(shared).sending, counts(shared).out) == (0, 2)
    assert turn(shared, "u", 0).is_idle


def test_a_claim_that_finds_no_letter_holds_none(shared):
    turn(shared, size=3)
    assert claim(shared, size=3) == ["a", "b", "c"]
    turn(shared, "u", size=3, holder="second")
    assert claim(shared, "u", size=3) == []
    assert counts(shared).in_hand == 3


def test_the_claims_of_a_process_without_its_lease_are_free_for_the_others(shared):
    turn(shared)
    assert claim(shared) == ["a", "b"]
    turn(shared, "u", 1, holder="second")
    assert claim(shared, "u", 1) == ["c"]
    first = shared.leases.take(SHARED.lease_names[0], holder="first", seconds=600)
    shared.leases.give_up(first)
    turn(shared, "v", 3, holder="second")
    assert (counts(shared).left_behind, counts(shared).sending) == (2, 2 + 1 + 3)
    assert claim(shared, "v", 3) == ["a", "b"]
    assert shared.sendings.of_letter("a")[0].redrive == 1
    assert counts(shared).in_hand == 3


def test_a_process_that_counted_as_dead_claims_no_letter(shared):
    turn(shared, holder="nobody")
    turn(shared, "u", 0)
    assert claim(shared) == []
    assert counts(shared).in_hand == 0


def test_what_was_allotted_is_free_again_when_the_claim_has_expired(shared):
    turn(shared)
    assert not turn(shared, "u", 0, holder="second", now=NOW + timedelta(seconds=119)).is_idle
    assert turn(shared, "u", 0, holder="second", now=SOON).is_idle


def test_a_process_frees_only_its_own_claims_when_it_begins(shared):
    turn(shared)
    turn(shared, "u", holder="second")
    assert (claim(shared), claim(shared, "u")) == (["a", "b"], ["c"])
    assert shared.claims.free("one", "second") == 1
    assert counts(shared).in_hand == 2
    assert shared.claims.free("one") == 2


def test_an_operation_is_not_done_while_a_process_has_letters(shared):
    turn(shared)
    with pytest.raises(OperationError, match="still being sent"):
        shared.operations.move("one", OperationState.DONE, who="ann", now=NOW)
    assert shared.operations.get("one").state is OperationState.RUNNING
    assert claim(shared, size=2) == ["a", "b"]
    shared.claims.end("one", "t", {"a": "", "b": ""}, now=NOW)
    done = shared.operations.move("one", OperationState.DONE, who="ann", now=NOW)
    assert (done.state, turn(shared, size=0).state) == (OperationState.DONE, OperationState.DONE)


def test_an_operation_that_is_gone_has_no_turns(store):
    with pytest.raises(UnknownOperation):
        turn(store)


@pytest.mark.on_servers
def test_simultaneous_turns_are_taken_one_after_the_other(shared):
    """Each process may have what is left of 20 letters, and sees what the others have got."""
    begin = threading.Barrier(4)

    def take(number: int) -> int:
        got = 0
        begin.wait(PATIENCE_S)
        for round_ in range(5):
            _, answer = shared.turns.take(
                SHARED, token=f"{number}.{round_}", holder="first", lease_until=SOON, now=NOW,
                decide=lambda now: Allotment(size=min(3, 20 - now.allotted)),
            )  # fmt: skip
            got += answer.size
        return got

    with ThreadPoolExecutor(4) as beside:
        assert sum(beside.map(take, range(4))) == 20
    assert shared.operations.get("one").allotted == 20


def test_the_processes_that_carry_an_operation_are_counted(shared):
    assert shared.operations.get("one").carriers == 2
    held = shared.leases.take(SHARED.lease_names[0], holder="first", seconds=600)
    shared.leases.give_up(held)
    [found] = shared.operations.find()
    assert found.carriers == 1
    assert shared.leases.free(SHARED.lease_names) == ["operation.one", "operation.one.3"]
    paused = shared.operations.move("one", OperationState.PAUSED, who="ann", now=NOW)
    assert paused.carriers == 0


def test_an_operation_begins_only_if_it_is_still_planned(store):
    store.operations.create(operation("one", detached=True))
    store.operations.move("one", OperationState.PAUSED, who="ann", now=NOW)
    found = store.operations.move(
        "one", OperationState.RUNNING, who="ann", now=NOW, source=OperationState.PLANNED
    )
    assert found.state is OperationState.PAUSED
    assert [row.act for row in store.audit.find().rows] == ["pause", "redrive"]
