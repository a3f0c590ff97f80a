"""Messages of redrives that have vanished: found, counted before they are sent again, and run once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from support.factories import T0, attempt, envelope, letter, operation, parking
from support.stores import redriving

from celery_dlq.model.letter import Outcome
from celery_dlq.model.operation import OperationState, Orders, Repair, SendingState
from celery_dlq.model.states import State
from celery_dlq.store.base import AppAndBroker, Drop, Filter
from celery_dlq.store.letters.vanished import MOST

REDRIVEN = Filter(states=frozenset({State.REDRIVEN}))
HOME = AppAndBroker(app="shop", broker="redis://here")
ONE = replace(operation("one"), home=HOME, state=OperationState.PLANNED)


def minutes(number: float):
    return T0 + timedelta(minutes=number)


@pytest.fixture
def lease(store):
    return store.leases.take("parked.here", holder="me", seconds=600)


@pytest.fixture
def sent(store):
    """Operation ``one``, which has sent a, b and c at minute 30."""
    for at, task_id in enumerate("abc"):
        store.letters.save([letter(task_id, attempt(minutes=at))])
    begin(store, ONE)
    send(store, "one", "t")
    return store


def begin(store, made, now: float = 29) -> None:
    store.operations.create(made)
    store.operations.move(made.id, OperationState.RUNNING, who="ann", now=minutes(now))


def send(store, of: str, token: str, now: float = 30, wanted: Filter | None = None) -> list[str]:
    made = operation(of) if wanted is None else operation(of, wanted=wanted)
    at = {"lease_until": minutes(now + 2), "now": minutes(now)}
    taken = store.claims.take(made, token=token, limit=10, **at).letters
    ids = [one.task_id for one in taken]
    store.claims.confirm(of, token, dict.fromkeys(ids, ""), now=minutes(now), is_all=True)
    return ids


def find(store, before: float = 60, *, of: str = "one", limit: int = 10, after=None):
    return store.vanished.find(of, sent_before=minutes(before), limit=limit, after=after)


def ids(found) -> list[str]:
    return [one.task_id for one in found]


def take(store, lease, found=None, token: str = "u", now: float = 61):
    found = find(store) if found is None else found
    return store.vanished.take(lease, found, token=token, now=minutes(now))


def may(store, copy: str, task_id: str = "a", redrive: int = 1) -> bool:
    (answer,) = store.sendings.accept([(task_id, redrive, copy)])
    return answer


def sending(store, task_id: str = "a"):
    return store.sendings.of_letter(task_id)[-1]


def test_what_was_sent_long_ago_and_has_no_outcome_is_found(sent):
    assert find(sent, 30) == []
    found = find(sent)
    assert ids(found) == ["a", "b", "c"]
    assert (found[0].queue, found[0].redrive, found[0].accepted, found[0].sent_again) == (
        "celery", 1, None, 0,
    )  # fmt: skip


def test_it_is_found_in_parts(sent):
    first = find(sent, limit=2)
    assert ids(first) == ["a", "b"]
    assert ids(find(sent, limit=2, after=first[-1])) == ["c"]
    sent.letters.save([letter("0")])
    send(sent, "one", "v", now=31)
    assert ids(find(sent, limit=2, after=first[-1])) == ["c", "0"]


def test_what_has_an_outcome_is_not_found(sent):
    sent.letters.record_outcomes(
        [Outcome(task_id="a", redrive=1, succeeded_at=minutes(40), worker="w")]
    )
    sent.letters.save([letter("b", attempt(1, redrive=1, minutes=41))])
    assert ids(find(sent)) == ["c"]


def test_neither_is_a_letter_that_was_redriven_again_closed_or_deleted(sent):
    sent.closing.discard(
        Filter(ids=("a",), states=REDRIVEN.states), who="ann", why="", now=minutes(40)
    )
    begin(sent, operation("two", wanted=replace(REDRIVEN, ids=("b",))))
    assert send(sent, "two", "v", 41, replace(REDRIVEN, ids=("b",))) == ["b"]
    assert ids(find(sent)) == ["c"]
    assert ids(find(sent, of="two")) == ["b"]
    sent.deleting.delete(replace(REDRIVEN, ids=("c",)), who="ann", why="", now=minutes(42))
    assert ids(find(sent)) == []


def test_neither_is_one_that_is_being_sent_or_was_left_behind(store):
    store.letters.save([letter("a")])
    begin(store, ONE)
    redriving.claim(store, Filter(), token="one", lease_until=minutes(32), limit=1, now=minutes(30))
    assert find(store) == []
    store.claims.rescue(minutes(33))
    assert find(store) == []


def test_neither_is_a_retry_that_is_parked(sent):
    sent.parked.park([parking("a", 60)], now=minutes(50))
    assert ids(find(sent)) == ["b", "c"]


def test_neither_is_one_that_is_being_redriven_once_more(sent):
    found = find(sent)
    wanted = replace(REDRIVEN, ids=("a",))
    redriving.claim(sent, wanted, token="v", lease_until=minutes(90), limit=1, now=minutes(50))
    assert ids(find(sent)) == ["b", "c"]
    lease = sent.leases.take("parked.here", holder="me", seconds=600)
    assert ids(take(sent, lease, found)) == ["b", "c"]


def test_a_letter_is_sent_as_its_redrive_has_sent_it(store, lease):
    kept = envelope("a", body=b"\x00\xff" * 40_000, headers={"id": "a", "task": "shop.charge"})
    store.letters.save([letter("a", envelope=kept)])
    begin(store, ONE)
    made = store.claims.take(
        operation("one"), token="t", lease_until=minutes(32), limit=1, now=minutes(30)
    )
    store.claims.confirm("one", "t", {"a": ""}, now=minutes(31), is_all=True)
    (first,) = made.letters
    (again,) = take(store, lease, token="u")
    assert again == first.with_(claim_token="u", lease_expires_at=minutes(61))


def test_each_time_is_counted_before_it_is_sent_and_waits_again(sent, lease):
    assert ids(take(sent, lease)) == ["a", "b", "c"]
    again = sending(sent)
    assert (again.state, again.sent_at) == (SendingState.SENT, minutes(30))
    assert (again.sent_again, again.sent_again_at) == (1, minutes(61))
    assert find(sent, 61) == []
    for turn in range(1, MOST):
        assert ids(take(sent, lease, find(sent, 62 + turn), f"u{turn}", 62 + turn)) == [*"abc"]
    assert find(sent, 99) == []
    assert sending(sent).sent_again == MOST
    assert sent.sendings.expire(sent_before=minutes(63), now=minutes(90)) == 0
    assert sent.sendings.expire(sent_before=minutes(99), now=minutes(99)) == 3


def test_what_has_changed_since_it_was_found_is_not_taken(sent, lease):
    found = find(sent)
    assert may(sent, "t", "a")
    sent.letters.record_outcomes(
        [Outcome(task_id="b", redrive=1, succeeded_at=minutes(40), worker="w")]
    )
    assert ids(take(sent, lease, found)) == ["c"]
    assert take(sent, lease, found) == ()
    assert [sending(sent, one).sent_again for one in "abc"] == [0, 0, 1]


def test_without_the_lease_nothing_is_taken(sent, lease):
    sent.leases.give_up(lease)
    sent.leases.take("parked.here", holder="other", seconds=600)
    assert take(sent, lease) == ()
    assert sending(sent).sent_again == 0


def test_what_was_certainly_not_sent_does_not_count(sent, lease):
    take(sent, lease)
    sent.vanished.give_back("one", ["a"], at=minutes(61))
    sent.vanished.give_back("one", ["b"], at=minutes(60))
    assert [sending(sent, one).sent_again for one in "abc"] == [0, 1, 1]
    assert sent.operations.get("one").sent_again == 2
    assert find(sent, 61) == []
    assert ids(find(sent, 62)) == ["a", "b", "c"]


@pytest.mark.parametrize("first", ["t", "u"])
def test_of_the_two_copies_one_runs_whichever_comes_first(sent, lease, first):
    take(sent, lease)
    second = {"t": "u", "u": "t"}[first]
    assert may(sent, first)
    assert not may(sent, second)
    assert may(sent, first)
    sent.letters.record_outcomes(
        [Outcome(task_id="a", redrive=1, succeeded_at=minutes(70), worker="w")]
    )
    assert not may(sent, second)
    assert sent.letters.get("a").state is State.RESOLVED


def test_if_a_worker_has_accepted_a_copy_that_copy_is_sent_again(sent, lease):
    assert may(sent, "t", "a")
    found = find(sent)
    assert [one.accepted for one in found] == ["t", None, None]
    again = take(sent, lease, found)
    assert {one.task_id: one.claim_token for one in again} == {"a": "t", "b": "u", "c": "u"}
    assert may(sent, "t", "a")
    assert not may(sent, "u", "a")


@pytest.mark.parametrize(
    ("moves", "is_found"),
    [
        ([], True),
        ([OperationState.DONE], True),
        ([OperationState.PAUSED], False),
        ([OperationState.CANCELLED], False),
        ([OperationState.ABORTED], False),
    ],
)
def test_an_operation_that_was_stopped_sends_nothing_again(sent, moves, is_found):
    for to in moves:
        sent.operations.move("one", to, who="ann", now=minutes(40))
    assert list(sent.vanished.repairs("redis://here")) == ["one"] * is_found


def test_operations_on_another_broker_or_without_awaited_letters_are_left_out(sent):
    assert sent.vanished.repairs("redis://there") == {}
    sent.sendings.expire(sent_before=minutes(99), now=minutes(99))
    assert sent.vanished.repairs("redis://here") == {}


def test_the_changes_of_an_operation_are_made_again(store):
    repair = Repair(assignments=("kwargs.currency='EUR'",), countdown_s=5.0)
    store.letters.save([letter("a")])
    begin(store, replace(ONE, orders=Orders(repair=repair)))
    send(store, "one", "t")
    assert store.vanished.repairs("redis://here") == {"one": repair}


def test_a_message_that_was_dropped_on_purpose_is_not_sent_again(sent):
    drop = Drop("a", 1, "t", "its task was revoked")
    assert sent.sendings.drop([drop], now=minutes(40)) == [True]
    dropped = sending(sent)
    assert (dropped.state, dropped.why, dropped.ended_at) == (
        SendingState.UNKNOWN, "its task was revoked", minutes(40),
    )  # fmt: skip
    assert ids(find(sent)) == ["b", "c"]
    assert sent.letters.get("a").state is State.REDRIVEN
    assert sent.sendings.drop([], now=minutes(40)) == []


def test_a_drop_of_another_copy_or_after_the_end_changes_nothing(sent):
    assert may(sent, "t", "a")
    sent.letters.record_outcomes(
        [Outcome(task_id="b", redrive=1, succeeded_at=minutes(35), worker="w")]
    )
    drops = [Drop("a", 1, "u", "revoked"), Drop("b", 1, "t", "revoked"), Drop("c", 2, "t", "x")]
    sent.sendings.drop(drops, now=minutes(40))
    assert [sending(sent, one).state.value for one in "abc"] == ["sent", "succeeded", "sent"]
    sent.sendings.drop([Drop("a", 1, "t", "it raised Ignore")], now=minutes(40))
    assert sending(sent).state is SendingState.UNKNOWN


def test_large_bodies_are_taken_a_few_at_a_time(store, lease):
    big = b"x" * (7 << 20)
    for name in "abc":
        store.letters.save([letter(name, envelope=envelope(name, body=big))])
    begin(store, ONE)
    assert send(store, "one", "t") == ["a", "b"]
    assert send(store, "one", "v") == ["c"]
    assert ids(take(store, lease)) == ["a", "b"]
    assert [sending(store, one).sent_again for one in "abc"] == [1, 1, 0]
    assert store.operations.get("one").sent_again == 2
