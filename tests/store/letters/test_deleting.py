"""Deleted letters are gone with all that they had, and nothing else is."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import func, select
from support.factories import T0, attempt, letter, operation
from support.stores import redriving
from support.stores.history import edit

from celery_dlq.errors import LeaseLost, StoreUnavailable
from celery_dlq.model.letter import Outcome
from celery_dlq.model.operation import SendingState
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter, LetterKey, OngoingAct
from celery_dlq.store.database import tables
from celery_dlq.store.letters import acts
from celery_dlq.store.rows import audit

pytestmark = pytest.mark.usefixtures("counts_hold_in_the_end")


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def delete(store, wanted: Filter, why: str = "30 days") -> int:
    return store.deleting.delete(wanted, who="ann", why=why, now=minutes(20))


def discard(store, *ids: str, now: float = 10) -> None:
    store.closing.discard(Filter(ids=ids), who="ann", why="obsolete", now=minutes(now))


def rows_of(store, table, task_id: str) -> int:
    counted = select(func.count()).select_from(table).where(table.c.task_id == task_id)
    return store.database.read(lambda connection: connection.execute(counted).scalar_one())


def contents(store) -> int:
    counted = select(func.count()).select_from(tables.content)
    return store.database.read(lambda connection: connection.execute(counted).scalar_one())


def key_of(store, task_id: str) -> LetterKey:
    found = store.letters.get(task_id)
    return LetterKey(
        task_id=task_id, last_failed_at=found.last_failed_at, closed_at=found.closed_at
    )


def lease(store, holder: str = "one"):
    return store.leases.take("retention", holder=holder, seconds=60)


def expire(store, *ids: str, act: OngoingAct) -> tuple[int, OngoingAct]:
    return store.deleting.delete_closed([key_of(store, one) for one in ids], lease(store), act)


ACT = OngoingAct(who="retention", act="expire", detail={"keep": []}, at=minutes(20))


@pytest.fixture
def letters(store):
    store.letters.save([letter(name, attempt(minutes=at)) for at, name in enumerate("abcd")])
    return store


def test_closed_letters_are_deleted_and_open_ones_stay(letters):
    discard(letters, "a", "b")
    assert delete(letters, Filter()) == 2
    assert [letters.letters.get(name) is None for name in "abcd"] == [True, True, False, False]


def test_a_letter_goes_with_its_content_attempts_and_changes(letters):
    edit(letters, "a", at=minutes(5))
    discard(letters, "a")
    assert delete(letters, Filter(ids=("a",))) == 1
    assert contents(letters) == 3
    assert rows_of(letters, tables.attempt, "a") == rows_of(letters, tables.change, "a") == 0
    assert rows_of(letters, tables.attempt, "b") == 1


def test_its_redrives_stay_without_texts(letters):
    operated = operation("one", wanted=Filter(ids=("a", "b")))
    letters.operations.create(operated)
    redriving.claim(
        letters, Filter(ids=("a", "b")), token="one", lease_until=minutes(60), limit=9, now=T0
    )
    redriving.end(letters, "one", "ab")
    letters.letters.save(
        [letter(name, attempt(redrive=1, minutes=8), message="card 4711") for name in "ab"]
    )
    discard(letters, "a")
    assert delete(letters, Filter()) == 1
    (kept,) = letters.sendings.of_letter("a")
    assert (kept.state, kept.why) == (SendingState.FAILED, "")
    (other,) = letters.sendings.of_letter("b")
    assert "card 4711" in other.why
    # A second copy of the message of that redrive may still be in a queue.
    assert letters.sendings.accept([("a", 1, "another copy")]) == [False]
    assert letters.operations.get("one").counts.failed == 2


def test_arrivals_stay_counted(letters):
    discard(letters, *"abcd")
    delete(letters, Filter())
    kept = select(tables.group.c.open_count, tables.group.c.total_count)
    assert letters.database.read(lambda connection: connection.execute(kept).all()) == [(0, 4)]
    assert sum(cell.arrived for cell in letters.monitoring.measures().cells) == 4


def test_open_letters_are_deleted_only_if_their_state_is_named(letters):
    assert delete(letters, Filter(ids=("a",))) == 0
    assert delete(letters, Filter(ids=("a",), states=frozenset({State.DEAD}))) == 1
    assert letters.letters.get("a") is None


def test_claimed_letters_stay(letters):
    redriving.claim(
        letters, Filter(ids=("a",)), token="t", lease_until=minutes(60), limit=9, now=T0
    )
    assert delete(letters, Filter(states=frozenset(State))) == 3
    assert letters.letters.get("a").state is State.CLAIMED


def test_a_deleted_letter_that_fails_again_arrives_anew(letters):
    discard(letters, "a")
    delete(letters, Filter())
    saved = letters.letters.save([letter("a", attempt(redrive=2, minutes=30))])
    assert saved.arrived == 1
    assert letters.letters.get("a").redrive_count == 2


def test_a_new_letter_with_the_task_id_of_a_deleted_one_counts_its_redrives_on(letters):
    letters.operations.create(operation("one", wanted=Filter(ids=("a",))))
    redriving.claim(
        letters, Filter(ids=("a",)), token="one", lease_until=minutes(60), limit=9, now=T0
    )
    redriving.end(letters, "one", "a")
    letters.letters.save([letter("a", attempt(redrive=1, minutes=8))])
    discard(letters, "a")
    delete(letters, Filter())
    letters.letters.save([letter("a", attempt(minutes=30))])
    assert letters.letters.get("a").redrive_count == 1
    claimed = redriving.claim(
        letters, Filter(ids=("a",)), token="two", lease_until=minutes(90), limit=9, now=minutes(31)
    )
    assert claimed.letters[0].redrive_count == 1
    assert letters.sendings.accept([("a", 2, "two")]) == [True]


def test_a_late_success_of_a_deleted_letter_changes_nothing(letters):
    delete(letters, Filter(ids=("a",), states=frozenset({State.DEAD})))
    late = Outcome(task_id="a", redrive=0, succeeded_at=minutes(30), worker="w")
    assert letters.letters.record_outcomes([late]) == 0


def test_an_act_in_many_chunks_is_one_audit_row(letters, monkeypatch):
    monkeypatch.setattr(acts, "CHUNK", 3)
    discard(letters, *"abcd")
    assert delete(letters, Filter(task="charge"), why="policy") == 4
    act = letters.audit.find(act="delete").rows[0]
    assert (act.who, act.count, act.why) == ("ann", 4, "policy")
    assert act.detail == {"filter": {"task": "charge"}}


def test_a_transaction_that_takes_too_long_is_tried_with_fewer_letters(letters, monkeypatch):
    discard(letters, *"abcd")
    sizes = []
    change_chunk = acts.Act.change_chunk

    def slow(act, connection, until, ongoing, size):
        sizes.append(size)
        if size > 100:
            raise StoreUnavailable("the statement took too long")
        return change_chunk(act, connection, until, ongoing, size)

    monkeypatch.setattr(acts.Act, "change_chunk", slow)
    assert delete(letters, Filter()) == 4
    assert sizes == [1_000, 250, 62, 62]


def test_a_store_that_stays_away_ends_the_act(letters, monkeypatch):
    def away(*_args, **_options):
        raise StoreUnavailable("away")

    monkeypatch.setattr(acts.Act, "change_chunk", away)
    with pytest.raises(StoreUnavailable, match="away"):
        discard(letters, "a")


def test_letters_are_deleted_by_their_keys(letters):
    discard(letters, "a", "b")
    assert expire(letters, "a", "b", act=ACT)[0] == 2
    assert [letters.letters.get(name) is None for name in "abcd"] == [True, True, False, False]


def test_deletions_of_one_act_are_one_audit_row(letters):
    discard(letters, "a", "b", "c")
    _deleted, act = expire(letters, "a", "b", act=ACT)
    expire(letters, "c", act=act)
    (row,) = letters.audit.find(act="expire").rows
    assert (row.who, row.count, row.at, row.detail) == ("retention", 3, minutes(20), {"keep": []})


def test_a_deletion_of_nothing_is_not_audited(letters):
    discard(letters, "a")
    keys = [key_of(letters, "a")]
    letters.closing.undiscard(Filter(ids=("a",)), who="bob", now=minutes(11))
    assert letters.deleting.delete_closed(keys, lease(letters), ACT) == (0, ACT)
    assert letters.audit.find(act="expire").rows == ()


def test_letters_stay_if_their_deletion_cannot_be_audited(letters, monkeypatch):
    def away(*_args):
        raise StoreUnavailable("away")

    discard(letters, "a")
    monkeypatch.setattr(audit, "add_to_act", away)
    with pytest.raises(StoreUnavailable, match="away"):
        expire(letters, "a", act=ACT)
    assert letters.letters.get("a") is not None


def test_a_letter_that_was_reopened_since_stays(letters):
    discard(letters, "a", "b", "c")
    keys = [key_of(letters, name) for name in "abc"]
    letters.closing.undiscard(Filter(ids=("a",)), who="bob", now=minutes(11))
    letters.closing.undiscard(Filter(ids=("b",)), who="bob", now=minutes(11))
    discard(letters, "b", now=12)
    assert letters.deleting.delete_closed(keys, lease(letters), ACT)[0] == 1
    assert letters.letters.get("c") is None
    assert letters.letters.get("a").state is State.DEAD
    assert letters.letters.get("b").state is State.DISCARDED


def test_without_the_lease_nothing_is_deleted(letters):
    discard(letters, "a")
    mine = lease(letters)
    letters.leases.give_up(mine)
    lease(letters, "two")
    with pytest.raises(LeaseLost, match="Another worker"):
        letters.deleting.delete_closed([key_of(letters, "a")], mine, ACT)
    assert letters.letters.get("a") is not None
