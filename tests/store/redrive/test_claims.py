"""Letters of a claim are written as if they were sent, and are read as claimed until the claim is gone."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select
from support.factories import T0, attempt, envelope, letter, operation
from support.stores.rollup_checks import assert_counts_hold

from celery_dlq.model.letter import Outcome
from celery_dlq.model.operation import Counts, SendingState
from celery_dlq.model.states import OPEN_STATES, State
from celery_dlq.store.base import Filter
from celery_dlq.store.database import tables
from celery_dlq.store.rows.bodies import within


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def claim(store, token: str = "t", now: float = 30) -> list[str]:
    """The ids that are claimed for two minutes."""
    taken = store.claims.take(
        operation("one"), token=token, lease_until=minutes(now + 2), limit=10, now=minutes(now)
    )
    return [item.task_id for item in taken.letters]


def end(store, *task_ids: str, token: str = "t", change: str = "", silent=()) -> None:
    sent = dict.fromkeys(task_ids, change)
    store.claims.confirm("one", token, sent, silent=silent, now=minutes(31), is_all=True)


def states(store) -> dict[str, str]:
    page = store.letters.find(Filter(states=frozenset(State)), limit=100)
    return {item.task_id: item.state.value for item in page.letters}


def sendings(store) -> dict[str, str]:
    return {item.task_id: item.state.value for item in store.sendings.of_operation("one").rows}


def claims(store) -> list[str]:
    tokens = select(tables.claim.c.token)
    return list(store.database.read(lambda connection: connection.execute(tokens).scalars().all()))


def only(*named: State) -> Filter:
    return Filter(states=frozenset(named))


@pytest.fixture
def held(store):
    """Letters a, b and c, claimed."""
    store.letters.save([letter(task_id, attempt(minutes=at)) for at, task_id in enumerate("abc")])
    store.operations.create(operation("one"))
    assert claim(store) == ["a", "b", "c"]
    yield store
    assert_counts_hold(store)


@pytest.mark.on_servers
def test_the_end_of_a_claim_sends_all_that_is_left_of_it(held):
    end(held, "a", "b", "c")
    assert states(held) == dict.fromkeys("abc", "redriven")
    assert sendings(held) == dict.fromkeys("abc", "sent")
    assert held.operations.get("one").counts == Counts(planned=3, sent=3)
    found = held.letters.get("a")
    assert (found.redrive_count, found.claim_token, found.lease_expires_at) == (1, None, None)
    assert held.sendings.of_letter("a")[0].sent_at == minutes(30)
    assert claims(held) == []


def test_a_letter_that_was_given_back_before_stays_so(held):
    held.claims.skip("one", "t", {"a": "too old"}, now=minutes(31))
    held.claims.release("one", "t", ["b"])
    assert held.operations.get("one").counts == Counts(planned=3, skipped=1, sending=1)
    end(held, "c")
    assert states(held) == {"a": "dead", "b": "dead", "c": "redriven"}
    assert sendings(held) == {"a": "skipped", "c": "sent"}
    assert [held.letters.get(name).redrive_count for name in "abc"] == [0, 0, 1]
    assert held.operations.get("one").counts == Counts(planned=3, skipped=1, sent=1)


@pytest.mark.on_servers
def test_changes_and_silence_are_noted(held):
    end(held, "a", "b", "c", change="- EUX\n+ EUR", silent={"b"})
    assert {one.change for one in held.sendings.of_operation("one").rows} == {"- EUX\n+ EUR"}
    assert sendings(held) == {"a": "sent", "b": "unknown", "c": "sent"}
    assert held.sendings.of_letter("a")[0].sent_at == minutes(31)


def test_it_may_end_twice(held):
    for _ in range(2):
        end(held, "a", "b", "c")
        assert states(held) == dict.fromkeys("abc", "redriven")
        assert held.operations.get("one").counts == Counts(planned=3, sent=3)


@pytest.mark.on_servers
def test_nothing_is_given_back_once_it_has_ended(held):
    end(held, "a", "b", "c")
    assert held.claims.release("one", "t", ["a"]) == 0
    assert held.claims.skip("one", "t", {"b": "late"}, now=minutes(31)) == 0
    assert held.claims.free("one") == held.claims.rescue(minutes(99)) == 0
    assert states(held) == dict.fromkeys("abc", "redriven")
    assert sendings(held) == dict.fromkeys("abc", "sent")


def test_a_claim_that_ends_after_its_rescue_marks_its_letters_as_sent(held):
    assert held.claims.rescue(minutes(33)) == 3
    end(held, "a", "b", "c")
    assert states(held) == dict.fromkeys("abc", "dead")
    assert sendings(held) == dict.fromkeys("abc", "sent")


def test_some_sendings_may_be_unknown(held):
    assert held.claims.confirm("one", "t", {"a": "", "b": "x"}, now=minutes(31)) == 2
    assert states(held) == {"a": "redriven", "b": "redriven", "c": "claimed"}
    assert held.operations.get("one").counts == Counts(planned=3, sent=2, sending=1)
    assert held.claims.rescue(minutes(33)) == 1
    assert states(held) == {"a": "redriven", "b": "redriven", "c": "dead"}
    assert sendings(held) == {"a": "sent", "b": "sent", "c": "sending"}
    assert [held.letters.get(name).redrive_count for name in "abc"] == [1, 1, 0]


def test_a_letter_that_ends_first_leaves_its_claim(held):
    ran = Outcome(task_id="a", redrive=1, succeeded_at=minutes(31), worker="w")
    assert held.letters.record_outcomes([ran]) == 1
    held.letters.save([letter("b", attempt(redrive=1, minutes=31))])
    assert states(held) == {"a": "resolved", "b": "dead", "c": "claimed"}
    assert sendings(held) == {"a": "succeeded", "b": "failed", "c": "sending"}
    end(held, "a", "b", "c")
    assert states(held) == {"a": "resolved", "b": "dead", "c": "redriven"}
    assert sendings(held) == {"a": "succeeded", "b": "failed", "c": "sent"}
    assert held.operations.get("one").counts == Counts(planned=3, succeeded=1, failed=1, sent=1)


def test_a_letter_that_ended_first_is_not_freed(held):
    held.letters.save([letter("b", attempt(redrive=1, minutes=31))])
    assert held.claims.rescue(minutes(33)) == 2
    assert states(held) == dict.fromkeys("abc", "dead")
    assert [held.letters.get(name).redrive_count for name in "abc"] == [0, 1, 0]


@pytest.mark.on_servers
def test_claimed_letters_are_found_as_claimed(held):
    held.letters.save([letter("d", attempt(minutes=9))])
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
        assert {item.task_id for item in held.letters.find(wanted).letters} == set(found)
        assert (
            held.counts.letters(wanted) == sum(held.counts.by_task(wanted).values()) == len(found)
        )
    by_state = held.monitoring.stats(T0).by_state
    assert (by_state[State.CLAIMED], by_state[State.REDRIVEN], by_state[State.DEAD]) == (3, 1, 0)


@pytest.mark.on_servers
def test_claimed_letters_are_not_discarded_as_redriven(held):
    assert held.closing.discard(only(State.REDRIVEN), who="ann", why="", now=minutes(31)) == 0
    end(held, "a", "b", "c")
    assert held.closing.discard(only(State.REDRIVEN), who="ann", why="", now=minutes(31)) == 3


@pytest.mark.on_servers
def test_the_sendings_of_a_claim_are_listed_as_being_sent(held):
    being_sent, sent = frozenset({SendingState.SENDING}), frozenset({SendingState.SENT})
    assert len(held.sendings.of_operation("one", states=being_sent).rows) == 3
    assert held.sendings.of_operation("one", states=sent).rows == ()
    assert held.sendings.of_letter("a")[0].sent_at is None
    end(held, "a", "b", "c")
    assert held.sendings.of_operation("one", states=being_sent).rows == ()
    assert len(held.sendings.of_operation("one", states=sent).rows) == 3


@pytest.mark.on_servers
def test_outcomes_of_a_claim_whose_process_died_are_still_awaited(held):
    assert held.sendings.expire(sent_before=minutes(600), now=minutes(700)) == 0
    assert states(held) == dict.fromkeys("abc", "dead")
    assert sendings(held) == dict.fromkeys("abc", "sending")


@pytest.mark.on_servers
def test_a_claim_is_bounded_in_bytes_and_has_the_bodies_whole(store, monkeypatch):
    bodies = {"a": b"a" * 70_000, "b": b"b" * 10, "c": b"c" * 50_000, "d": b"\x00\xff" * 40_000}
    store.letters.save(
        [
            letter(name, attempt(minutes=at), envelope=envelope(name, body=body))
            for at, (name, body) in enumerate(bodies.items())
        ]
    )
    monkeypatch.setattr(within, "__defaults__", (125_000,))
    for token, taken in (("t", "abc"), ("u", "d"), ("v", "")):
        found = store.claims.take(
            operation("one"), token=token, lease_until=minutes(32), limit=10, now=minutes(30)
        )
        assert {one.task_id: one.envelope.body for one in found.letters} == {
            name: bodies[name] for name in taken
        }


@pytest.mark.on_servers
def test_bodies_that_are_too_large_to_be_read_with_so_many_letters_are_whole(store, monkeypatch):
    monkeypatch.setattr("celery_dlq.store.rows.bodies.TOGETHER", 30_000)
    sizes = {"a": 10_000, "b": 10_001, "c": 30_000}
    store.letters.save(
        [
            letter(name, attempt(minutes=at), envelope=envelope(name, body=name.encode() * size))
            for at, (name, size) in enumerate(sizes.items())
        ]
    )
    found = store.claims.take(
        operation("one"), token="t", lease_until=minutes(32), limit=10, now=minutes(30)
    )
    assert {one.task_id: one.envelope.body for one in found.letters} == {
        name: name.encode() * size for name, size in sizes.items()
    }


@pytest.mark.on_servers
def test_claims_are_made_side_by_side_where_there_are_several_writers(store):
    assert store.claims.at_once == (1 if store.database.dialect.name == "sqlite" else 2)


@pytest.mark.on_servers
def test_the_first_ids_are_those_that_a_claim_takes_first(store):
    moments = {"a": 30, "b": 10, "c": 20}
    store.letters.save([letter(name, attempt(minutes=at)) for name, at in moments.items()])
    store.operations.create(operation("one"))
    assert store.claims.first_ids(Filter(), 9) == ["b", "c", "a"]
    assert store.claims.first_ids(Filter(task="charge"), 2) == ["b", "c"]
    assert store.claims.first_ids(Filter(task="mail"), 2) == []
    assert claim(store) == ["b", "c", "a"]
    assert store.claims.first_ids(Filter(), 9) == []
    end(store, "a", "b", "c")
    store.letters.save([letter("d", attempt(minutes=40))])
    assert store.claims.first_ids(only(State.DEAD, State.REDRIVEN), 9) == ["d", "b", "c", "a"]


@pytest.mark.on_servers
def test_a_claim_may_take_letters_of_every_cause_in_turn(store):
    causes = {"a1": "a", "a2": "a", "a3": "a", "b1": "b", "b2": "b", "c1": "c"}
    store.letters.save(
        [
            letter(task_id, attempt(minutes=at), fingerprint=cause)
            for at, (task_id, cause) in enumerate(causes.items())
        ]
    )
    one = operation("one", counts=Counts(planned=6))
    store.operations.create(one)

    def take(token, limit, asked=one):
        taken = store.claims.take(
            asked, token=token, lease_until=minutes(32), limit=limit, now=minutes(30),
            of_every_cause=True,
        )  # fmt: skip
        return [item.task_id for item in taken.letters]

    assert take("t1", 2) == ["a1", "b1"]
    assert take("t2", 2) == ["a2", "c1"], "the cause that was not sent yet comes first"
    limited = operation("two", counts=Counts(planned=1))
    assert take("t3", 9, limited) == ["a3"], "the others are beyond its limit"
    assert take("t4", 9) == ["b2"]


@pytest.mark.on_servers
def test_the_last_redrive_of_each_cause(store):
    store.letters.save([letter(one, fingerprint=one[0]) for one in ("a1", "a2", "b1")])
    for number, (ids, failed) in enumerate([(("a1", "b1"), ("a1",)), (("a2",), ())]):
        wanted = Filter(ids=ids)
        made = operation(f"op{number}", wanted=wanted, created_at=minutes(number))
        store.operations.create(made)
        store.claims.take(made, token=made.id, lease_until=minutes(32), limit=9, now=minutes(30))
        store.claims.confirm(made.id, made.id, dict.fromkeys(ids, ""), now=minutes(31), is_all=True)
        for one in ids:
            if one in failed:
                store.letters.save([letter(one, attempt(redrive=1, minutes=32), fingerprint="x")])
            else:
                store.letters.record_outcomes(
                    [Outcome(task_id=one, redrive=1, succeeded_at=minutes(32), worker="w")]
                )
        if not number:
            assert store.sendings.last_of_causes() == {"a": ("op0", 1, 1), "b": ("op0", 0, 1)}
    assert store.sendings.last_of_causes() == {"a": ("op1", 0, 1), "b": ("op0", 0, 1)}
