"""Closed letters that were kept long enough are found, and no others."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from support.factories import T0, attempt, letter

from celery_dlq.model.letter import Explanation
from celery_dlq.model.states import State, Verdict
from celery_dlq.store.base import Expiry, Filter
from celery_dlq.store.keeping import CLOSED_AGES, Kept

RESOLVED = frozenset({State.RESOLVED})


def days(number: float):
    return T0 + timedelta(days=number)


def discard(store, *ids: str, at: float) -> None:
    store.closing.discard(Filter(ids=ids), who="ann", why="", now=days(at))


def expired(store, *expiries: Expiry, step: int = 2) -> list[str]:
    found, after = [], None
    while True:
        part = store.expiring.find(expiries, after, step=step)
        found += [key.task_id for key in part.rows]
        after = part.next
        if after is None:
            return found


def counted(store, *expiries: Expiry, step: int = 2, now: float = 15) -> dict[int, Kept]:
    found: dict[int, Kept] = {}
    after = None
    while True:
        part, after = store.expiring.count(expiries, after, now=days(now), step=step)
        for number, kept in part.items():
            found[number] = found.get(number, Kept.none()) + kept
        if after is None:
            return found


@pytest.fixture
def letters(store):
    """Five letters that were closed on days 10 to 14, and one that is open."""
    names = "abcdef"
    store.letters.save(
        [
            letter(name, attempt(failed_at=days(at)), task="pay" if name in "ab" else "mail")
            for at, name in enumerate(names)
        ]
    )
    for at, name in enumerate(names[:5]):
        discard(store, name, at=10 + at)
    return store


def test_letters_expire_by_the_time_since_they_were_closed(letters):
    assert expired(letters, Expiry(where=Filter(), before=days(12))) == ["a", "b"]
    assert expired(letters, Expiry(where=Filter(), before=days(99))) == [*"abcde"]


def test_the_first_entry_that_matches_counts(letters):
    pay = Filter(task="pay")
    assert expired(
        letters, Expiry(where=pay, before=None), Expiry(where=Filter(), before=days(99))
    ) == ["c", "d", "e"]
    assert expired(
        letters, Expiry(where=pay, before=days(11)), Expiry(where=Filter(), before=days(99))
    ) == ["a", "c", "d", "e"]


def test_letters_that_no_entry_matches_stay(letters):
    assert expired(letters, Expiry(where=Filter(task="pay"), before=days(99))) == ["a", "b"]
    assert expired(letters) == []


def test_the_fields_of_a_failure_choose_too(store):
    judged = Explanation(verdict=Verdict.TRANSIENT, rule="http.status")
    special = {"release": "2", "tags": ("t",), "root_id": "r", "explanation": judged}
    store.letters.save([letter("a", **special), letter("b", root_id=None)])
    discard(store, "a", "b", at=1)
    fields = {"release": "2", "tag": "t", "root": "r", "verdict": judged.verdict, "rule": "http."}
    for name, value in fields.items():
        kept = Expiry(where=Filter(**{name: value}), before=None)
        assert expired(store, Expiry(where=kept.where, before=days(9))) == ["a"]
        assert expired(store, kept, Expiry(where=Filter(), before=days(9))) == ["b"]


def test_an_entry_may_be_about_one_closed_state(letters):
    assert expired(letters, Expiry(where=Filter(states=RESOLVED), before=days(99))) == []


def test_a_reopened_letter_does_not_expire(letters):
    letters.closing.undiscard(Filter(ids=("a",)), who="bob", now=days(20))
    assert expired(letters, Expiry(where=Filter(), before=days(12))) == ["b"]


def test_letters_of_the_same_moment_are_all_found(store):
    store.letters.save([letter(name, attempt()) for name in "abcde"])
    discard(store, *"abcde", at=1)
    everything = Expiry(where=Filter(), before=days(2))
    assert expired(store, everything, step=2) == [*"abcde"]


def test_what_each_entry_keeps_is_counted(letters):
    found = counted(letters, Expiry(where=Filter(task="pay"), before=days(11)))
    assert {
        number: (kept.every.letters, kept.expired.letters) for number, kept in found.items()
    } == {0: (2, 1), -1: (3, 0)}
    assert found[0].oldest_closed_at == days(10)
    assert found[0].every.size == 2 * found[0].expired.size > 0
    assert found[-1].expired.size == 0


def test_letters_that_will_expire_are_counted_without_those_that_have(letters):
    found = counted(letters, Expiry(where=Filter(), before=days(11)))[0]
    assert (found.expired.letters, found.within_day, found.within_week) == (1, 1, 4)
    found = counted(letters, Expiry(where=Filter(), before=days(4)))[0]
    assert (found.expired.letters, found.within_day, found.within_week) == (0, 0, 1)
    found = counted(letters, Expiry(where=Filter(), before=None))[0]
    assert (found.expired.letters, found.within_day, found.within_week) == (0, 0, 0)


def test_letters_are_counted_by_the_time_since_they_were_closed(letters):
    def ages(now: float) -> list[int]:
        return [counted(letters, now=now)[-1].ages[bound].letters for bound in CLOSED_AGES]

    assert ages(14.5) == [1, 4, 0, 0, 0, 0]
    assert ages(15) == [0, 5, 0, 0, 0, 0], "an age is below its upper bound"
    assert ages(41) == [0, 0, 3, 2, 0, 0]
    assert ages(10 + 365) == [0, 0, 0, 0, 4, 1]


def test_the_size_is_that_of_the_message_and_the_texts(store):
    store.letters.save([letter("a", args=["x" * 5_000]), letter("b", traceback="é" * 100)])
    discard(store, "a", "b", at=1)
    found = counted(store)[-1].every
    stored = "SELECT headers, args, kwargs, traceback, body FROM celery_dead_letter_content"
    rows = store.database.read(lambda one: one.execute(text(stored)).all())
    texts = [value for row in rows for value in row[:4]]
    bytes_of_text = (
        len if store.database.dialect.name == "sqlite" else lambda one: len(one.encode())
    )
    assert found.size == sum(map(bytes_of_text, texts)) + sum(len(row.body) for row in rows)


def test_nothing_is_counted_in_an_empty_store(store):
    assert counted(store, Expiry(where=Filter(), before=days(1))) == {}


@settings(
    max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    closed=st.lists(st.integers(0, 6), max_size=12),
    bounds=st.lists(
        st.tuples(st.sampled_from(["pay", "mail", None]), st.none() | st.integers(0, 8)), max_size=3
    ),
    step=st.integers(1, 5),
)
def test_what_is_found_is_what_the_definition_says(emptied, closed, bounds, step):
    store = emptied()
    tasks = ["pay" if number % 2 else "mail" for number in range(len(closed))]
    store.letters.save(
        [letter(f"{number:02}", attempt(), task=task) for number, task in enumerate(tasks)]
    )
    for number, at in enumerate(closed):
        discard(store, f"{number:02}", at=at)
    expiries = [
        Expiry(where=Filter(task=task), before=None if at is None else days(at))
        for task, at in bounds
    ]

    def is_old(number: int) -> bool:
        for (task, at), _expiry in zip(bounds, expiries, strict=True):
            if task in (None, tasks[number]):
                return at is not None and closed[number] < at
        return False

    assert sorted(expired(store, *expiries, step=step)) == [
        f"{number:02}" for number in range(len(closed)) if is_old(number)
    ]
