"""What a claim holds is written as if it were sent, and is read as claimed until the claim is gone."""

from __future__ import annotations

from datetime import timedelta

import pytest
from factories import T0, attempt, envelope, letter, operation
from recount import assert_counts_hold
from sqlalchemy import select

from celery_dlq.letter import Outcome
from celery_dlq.operation import Counts, SendingState
from celery_dlq.states import OPEN_STATES, State
from celery_dlq.store import tables
from celery_dlq.store.base import Filter
from celery_dlq.store.bodies import within


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def claim(store, token: str = "t", now: float = 30) -> list[str]:
    """The ids that are claimed for two minutes."""
    taken = store.claim_for(
        operation("one"), token=token, lease_until=minutes(now + 2), limit=10, now=minutes(now)
    )
    return [item.task_id for item in taken.letters]


def end(store, *task_ids: str, token: str = "t", change: str = "", silent=()) -> None:
    sent = dict.fromkeys(task_ids, change)
    store.end_claim("one", token, sent, silent=silent, now=minutes(31))


def states(store) -> dict[str, str]:
    page = store.find(Filter(states=frozenset(State)), limit=100)
    return {item.task_id: item.state.value for item in page.letters}


def sendings(store) -> dict[str, str]:
    return {item.task_id: item.state.value for item in store.sendings("one").rows}


def claims(store) -> list[str]:
    tokens = select(tables.claim.c.token)
    return list(store.database.read(lambda connection: connection.execute(tokens).scalars().all()))


def only(*named: State) -> Filter:
    return Filter(states=frozenset(named))


@pytest.fixture
def held(store):
    """Letters a, b and c, claimed."""
    store.save([letter(task_id, attempt(minutes=at)) for at, task_id in enumerate("abc")])
    store.create_operation(operation("one"))
    assert claim(store) == ["a", "b", "c"]
    yield store
    assert_counts_hold(store)


def test_the_end_of_a_claim_sends_all_that_is_left_of_it(held):
    end(held, "a", "b", "c")
    assert states(held) == dict.fromkeys("abc", "redriven")
    assert sendings(held) == dict.fromkeys("abc", "sent")
    assert held.operation("one").counts == Counts(planned=3, sent=3)
    found = held.get("a")
    assert (found.redrive_count, found.claim_token, found.lease_expires_at) == (1, None, None)
    assert held.sendings_of("a")[0].sent_at == minutes(30)
    assert claims(held) == []


def test_what_was_given_back_before_stays_so(held):
    held.skip_sendings("one", "t", {"a": "too old"}, now=minutes(31))
    held.release_sendings("one", "t", ["b"])
    assert held.operation("one").counts == Counts(planned=3, skipped=1, sending=1)
    end(held, "c")
    assert states(held) == {"a": "dead", "b": "dead", "c": "redriven"}
    assert sendings(held) == {"a": "skipped", "c": "sent"}
    assert [held.get(name).redrive_count for name in "abc"] == [0, 0, 1]
    assert held.operation("one").counts == Counts(planned=3, skipped=1, sent=1)


def test_changes_and_silence_are_noted(held):
    end(held, "a", "b", "c", change="- EUX\n+ EUR", silent={"b"})
    assert {one.change for one in held.sendings("one").rows} == {"- EUX\n+ EUR"}
    assert sendings(held) == {"a": "sent", "b": "unknown", "c": "sent"}
    assert held.sendings_of("a")[0].sent_at == minutes(31)


def test_it_may_end_twice(held):
    for _ in range(2):
        end(held, "a", "b", "c")
        assert states(held) == dict.fromkeys("abc", "redriven")
        assert held.operation("one").counts == Counts(planned=3, sent=3)


def test_nothing_is_given_back_once_it_has_ended(held):
    end(held, "a", "b", "c")
    assert held.release_sendings("one", "t", ["a"]) == 0
    assert held.skip_sendings("one", "t", {"b": "late"}, now=minutes(31)) == 0
    assert held.free_claims("one") == held.rescue(minutes(99)) == 0
    assert states(held) == dict.fromkeys("abc", "redriven")
    assert sendings(held) == dict.fromkeys("abc", "sent")


def test_of_what_was_rescued_first_it_says_that_it_is_out(held):
    assert held.rescue(minutes(33)) == 3
    end(held, "a", "b", "c")
    assert states(held) == dict.fromkeys("abc", "dead")
    assert sendings(held) == dict.fromkeys("abc", "sent")


def test_of_some_nothing_may_be_known(held):
    assert held.confirm_sendings("one", "t", {"a": "", "b": "x"}, now=minutes(31)) == 2
    assert states(held) == {"a": "redriven", "b": "redriven", "c": "claimed"}
    assert held.operation("one").counts == Counts(planned=3, sent=2, sending=1)
    assert held.rescue(minutes(33)) == 1
    assert states(held) == {"a": "redriven", "b": "redriven", "c": "dead"}
    assert sendings(held) == {"a": "sent", "b": "sent", "c": "sending"}
    assert [held.get(name).redrive_count for name in "abc"] == [1, 1, 0]


def test_a_letter_that_ends_first_leaves_its_claim(held):
    ran = Outcome(task_id="a", redrive=1, succeeded_at=minutes(31), worker="w")
    assert held.record_outcomes([ran]) == 1
    held.save([letter("b", attempt(redrive=1, minutes=31))])
    assert states(held) == {"a": "resolved", "b": "dead", "c": "claimed"}
    assert sendings(held) == {"a": "succeeded", "b": "failed", "c": "sending"}
    end(held, "a", "b", "c")
    assert states(held) == {"a": "resolved", "b": "dead", "c": "redriven"}
    assert sendings(held) == {"a": "succeeded", "b": "failed", "c": "sent"}
    assert held.operation("one").counts == Counts(planned=3, succeeded=1, failed=1, sent=1)


def test_a_letter_that_ended_first_is_not_freed(held):
    held.save([letter("b", attempt(redrive=1, minutes=31))])
    assert held.rescue(minutes(33)) == 2
    assert states(held) == dict.fromkeys("abc", "dead")
    assert [held.get(name).redrive_count for name in "abc"] == [0, 1, 0]


def test_what_is_claimed_is_found_as_that(held):
    held.save([letter("d", attempt(minutes=9))])
    assert claim(held, "u") == ["d"]
    end(held, "d", token="u")
    for named, found in (
        ([State.CLAIMED], "abc"),
        ([State.REDRIVEN], "d"),
        ([State.DEAD, State.CLAIMED], "abc"),
        ([State.DEAD, State.REDRIVEN], "d"),
        (OPEN_STATES, "abcd"),
    ):
        wanted = only(*named)
        assert {item.task_id for item in held.find(wanted).letters} == set(found)
        assert held.count(wanted) == sum(held.count_by_task(wanted).values()) == len(found)
    by_state = held.stats(T0).by_state
    assert (by_state[State.CLAIMED], by_state[State.REDRIVEN], by_state[State.DEAD]) == (3, 1, 0)


def test_what_is_claimed_is_not_discarded_as_redriven(held):
    assert held.discard(only(State.REDRIVEN), who="ann", why="", now=minutes(31)) == 0
    end(held, "a", "b", "c")
    assert held.discard(only(State.REDRIVEN), who="ann", why="", now=minutes(31)) == 3


def test_the_sendings_of_a_claim_are_listed_as_being_sent(held):
    being_sent, sent = frozenset({SendingState.SENDING}), frozenset({SendingState.SENT})
    assert len(held.sendings("one", states=being_sent).rows) == 3
    assert held.sendings("one", states=sent).rows == ()
    assert held.sendings_of("a")[0].sent_at is None
    end(held, "a", "b", "c")
    assert held.sendings("one", states=being_sent).rows == ()
    assert len(held.sendings("one", states=sent).rows) == 3


def test_outcomes_of_a_claim_whose_process_died_are_not_given_up_on(held):
    assert held.expire_sendings(sent_before=minutes(600), now=minutes(700)) == 0
    assert states(held) == dict.fromkeys("abc", "dead")
    assert sendings(held) == dict.fromkeys("abc", "sending")


def test_a_claim_is_bounded_in_bytes_and_has_the_bodies_whole(store, monkeypatch):
    bodies = {"a": b"a" * 70_000, "b": b"b" * 10, "c": b"c" * 50_000, "d": b"\x00\xff" * 40_000}
    store.save(
        [
            letter(name, attempt(minutes=at), envelope=envelope(name, body=body))
            for at, (name, body) in enumerate(bodies.items())
        ]
    )
    monkeypatch.setattr(within, "__defaults__", (125_000,))
    for token, taken in (("t", "abc"), ("u", "d"), ("v", "")):
        found = store.claim_for(
            operation("one"), token=token, lease_until=minutes(32), limit=10, now=minutes(30)
        )
        assert {one.task_id: one.envelope.body for one in found.letters} == {
            name: bodies[name] for name in taken
        }


def test_bodies_that_are_too_large_to_be_read_along_with_so_many_are_whole(store, monkeypatch):
    monkeypatch.setattr("celery_dlq.store.bodies.TOGETHER", 30_000)
    sizes = {"a": 10_000, "b": 10_001, "c": 30_000}
    store.save(
        [
            letter(name, attempt(minutes=at), envelope=envelope(name, body=name.encode() * size))
            for at, (name, size) in enumerate(sizes.items())
        ]
    )
    found = store.claim_for(
        operation("one"), token="t", lease_until=minutes(32), limit=10, now=minutes(30)
    )
    assert {one.task_id: one.envelope.body for one in found.letters} == {
        name: name.encode() * size for name, size in sizes.items()
    }


def test_claims_are_made_side_by_side_where_there_are_several_writers(store):
    assert store.claims_at_once == (1 if store.database.dialect == "sqlite" else 2)
