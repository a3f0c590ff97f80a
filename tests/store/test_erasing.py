"""Erased letters are gone, and so is what the store has noted about them elsewhere."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import func, select
from support import redriving
from support.factories import T0, attempt, letter, operation, parking
from support.history import edit

from celery_dlq.errors import LeaseLost
from celery_dlq.model.group import Annotate
from celery_dlq.model.operation import OperationState
from celery_dlq.model.states import State
from celery_dlq.store.base import ErasedSegment, Filter, OngoingAct
from celery_dlq.store.database import tables

ACT = OngoingAct(
    who="ann", act="forget", why="request 12", detail={"where": ["args.user_id"]}, at=T0
)
JO = "jo@example.com"


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def lease(store, holder: str = "one"):
    return store.leases.take("retention", holder=holder, seconds=60)


def begin(store) -> OngoingAct:
    return store.erasing.begin(ACT, lease(store))


def erase(store, *ids: str, act: OngoingAct | None = None) -> list[str]:
    return store.erasing.delete(ids, lease(store), act or begin(store))


def rows(store, table) -> int:
    counted = select(func.count()).select_from(table)
    return store.database.read(lambda connection: connection.execute(counted).scalar_one())


def acts(store, act: str):
    return store.audit.find(act=act).rows


def example(store, fingerprint: str) -> str:
    return store.groups.get(fingerprint, now=T0).message


def note(store, text: str) -> None:
    store.groups.triage("aa", Annotate(note=text), who="bob", now=T0)


def cancel(store, operation_id: str, cause: str = "") -> None:
    store.operations.move(operation_id, OperationState.CANCELLED, who="bob", cause=cause, now=T0)


@pytest.fixture
def letters(store, counts_hold_in_the_end):
    store.letters.save(
        [
            letter(name, attempt(minutes=at), message=f"failed for {name}", fingerprint="aa")
            for at, name in enumerate("abcd")
        ]
    )
    return store


def test_letters_in_any_state_are_gone_with_all_that_they_had(letters):
    edit(letters, "a", at=minutes(5))
    letters.closing.discard(Filter(ids=("b",)), who="ann", why="", now=minutes(10))
    assert erase(letters, "a", "b", "gone") == ["a", "b"]
    assert letters.letters.get("a") is letters.letters.get("b") is None
    assert (rows(letters, tables.content), rows(letters, tables.attempt)) == (2, 2)
    assert rows(letters, tables.change) == 0


def test_a_letter_that_is_being_sent_stays(letters):
    redriving.claim(
        letters, Filter(ids=("a",)), token="one", lease_until=minutes(60), limit=9, now=T0
    )
    assert erase(letters, "a", "b") == ["b"]
    assert letters.letters.get("a").state is State.CLAIMED


def test_the_act_is_written_first_and_counts_the_letters(letters):
    begun = begin(letters)
    (act,) = acts(letters, "forget")
    assert (act.who, act.count, act.why, act.detail) == ("ann", 0, "request 12", ACT.detail)
    erase(letters, "a", act=begun)
    erase(letters, "b", "c", act=begun)
    assert [one.count for one in acts(letters, "forget")] == [3]


def test_without_the_lease_nothing_is_erased(letters):
    mine, begun = lease(letters), begin(letters)
    letters.leases.give_up(mine)
    lease(letters, "two")
    with pytest.raises(LeaseLost, match="Another worker"):
        letters.erasing.delete(["a"], mine, begun)
    with pytest.raises(LeaseLost, match="Another worker"):
        letters.erasing.begin(ACT, mine)
    assert letters.letters.get("a") is not None


def test_the_example_of_a_group_comes_from_a_letter_that_it_still_has(letters):
    assert example(letters, "aa") == "failed for d"
    erase(letters, "d", "b")
    assert example(letters, "aa") == "failed for c"


def test_the_example_of_a_group_goes_with_its_last_letter(letters):
    erase(letters, *"abcd")
    assert example(letters, "aa") == ""
    letters.letters.save([letter("e", attempt(minutes=1), message="new", fingerprint="aa")])
    assert example(letters, "aa") == "new"


def test_acts_on_a_letter_keep_neither_their_reason_nor_their_changes(letters):
    edit(letters, "a", at=minutes(5))
    letters.closing.discard(Filter(ids=("a",)), who="bob", why=f"{JO} left", now=minutes(10))
    letters.closing.discard(Filter(ids=("b",)), who="bob", why="other", now=minutes(10))
    erase(letters, "a")
    (changed,) = acts(letters, "edit")
    assert changed.detail == {"letter": "a"}
    other, discarded = acts(letters, "discard")
    assert (discarded.who, discarded.why, discarded.detail) == ("bob", "[erased]", {"letter": "a"})
    assert other.why == "other"


def test_the_act_names_the_segments_that_were_replaced(letters):
    begun = begin(letters)
    for number in ("1", "2"):
        removed = ErasedSegment(
            before=number, after=f"{number}0", task_ids=("x", "y"), fingerprints=frozenset({"aa"})
        )
        begun = letters.erasing.note_archived(removed, begun)
    (act,) = acts(letters, "forget")
    assert act.count == 4
    assert act.detail == {**ACT.detail, "segments": {"1": "10", "2": "20"}}


def test_a_value_is_replaced_wherever_people_have_written_it(letters):
    letters.closing.discard(Filter(ids=("a",)), who="bob", why=f"of {JO}, today", now=T0)
    note(letters, f"Call {JO}!")
    letters.operations.create(operation("done", wanted=Filter(search=JO)))
    cancel(letters, "done", f"asked by {JO}")
    letters.operations.create(operation("waits", wanted=Filter(search=JO)))
    before = letters.erasing.mentions([JO])
    assert letters.erasing.replace_texts([JO]) == before
    assert before > 3
    assert letters.operations.get("done").wanted.search == "[erased]"
    assert letters.operations.get("done").state is OperationState.CANCELLED
    assert letters.operations.get("waits").wanted.search == JO
    (group,) = letters.groups.find(Filter(group="aa"), now=T0)
    assert group.note == "Call [erased]!"
    assert letters.erasing.mentions([JO]) == 0


def test_only_whole_words_are_replaced(letters):
    for text in ("4711", "x4711", "47110", "no. 4711.", "4711-2"):
        note(letters, text)
        letters.erasing.replace_texts(["4711"])
        (group,) = letters.groups.find(Filter(group="aa"), now=T0)
        assert group.note == text if text in ("x4711", "47110") else "4711" not in group.note


@pytest.mark.parametrize("name", ["Zoë", 'Jo "the" Ann', "100%_sure", "a\\b"])
def test_values_with_special_characters_are_found_in_json(letters, name):
    letters.operations.create(operation("one", wanted=Filter(search=name)))
    cancel(letters, "one")
    letters.erasing.replace_texts([name])
    assert letters.operations.get("one").wanted.search == "[erased]"


def test_without_texts_nothing_is_replaced(letters):
    note(letters, "note")
    assert letters.erasing.mentions([]) == letters.erasing.replace_texts([]) == 0


def test_parked_retries_are_read_page_by_page(store):
    store.parked.park([parking(name, 60) for name in "abc"], now=store.now())
    first = store.erasing.parked(0, limit=2)
    second = store.erasing.parked(first[-1][0], limit=2)
    assert [one.task_id for _, one in (*first, *second)] == ["a", "b", "c"]
    assert store.erasing.parked(second[-1][0], limit=2) == []
    assert first[0][1].envelope.body == letter("a").envelope.body
