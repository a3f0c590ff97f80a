from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from support.factories import T0, attempt, envelope, letter, operation

from celery_dlq.redrive.letter.edit import digest_of
from celery_dlq.store.base import Change, Edit

BEFORE = envelope("a", headers={"id": "a", "odd": float("nan"), "bytes": b"\xff"})


def edit(body: bytes = b"[[18], {}, {}]", **changes) -> Edit:
    values = {
        "task_id": "a",
        "before": BEFORE,
        "after": replace(BEFORE, body=body, headers={"id": "a", "new": b"\x00"}),
        "args": [18],
        "kwargs": {},
        "diff": "- [17]\n+ [18]",
        "who": "ann",
        "at": T0 + timedelta(minutes=5),
    }
    return Edit(**{**values, **changes})


def test_an_edit_changes_the_message_and_keeps_the_old_one(store):
    store.letters.save([letter("a", envelope=BEFORE)])
    assert store.edits.save(edit())
    found = store.letters.get("a")
    assert (found.envelope, found.args, found.kwargs) == (edit().after, [18], {})
    (change,) = store.edits.of_letter("a")
    assert repr(change) == repr(
        Change(
            task_id="a", at=edit().at, who="ann", how="edit", diff="- [17]\n+ [18]", before=BEFORE
        )
    )
    (row,) = store.audit.find().rows
    assert (row.act, row.who, row.count, row.detail) == (
        "edit", "ann", 1, {"letter": "a", "changed": "- [17]\n+ [18]"},
    )  # fmt: skip


def test_saved_twice_it_is_one_change(store):
    store.letters.save([letter("a", envelope=BEFORE)])
    assert store.edits.save(edit())
    assert store.edits.save(edit())
    assert len(store.edits.of_letter("a")) == len(store.audit.find().rows) == 1


def test_changes_are_listed_oldest_first(store):
    store.letters.save([letter("a", envelope=BEFORE)])
    store.edits.save(edit())
    store.edits.save(edit(before=edit().after, after=BEFORE, who="bob"))
    assert [(item.who, item.before.body) for item in store.edits.of_letter("a")] == [
        ("ann", BEFORE.body), ("bob", edit().after.body),
    ]  # fmt: skip
    assert store.edits.of_letter("b") == []


def test_a_letter_that_another_person_has_changed_stays(store):
    store.letters.save([letter("a", envelope=BEFORE)])
    assert store.edits.save(edit())
    assert not store.edits.save(edit(b"[[19], {}, {}]", who="bob"))
    assert store.letters.get("a").envelope == edit().after
    assert [item.who for item in store.edits.of_letter("a")] == ["ann"]


def test_only_a_letter_that_waits_is_changed(store):
    assert not store.edits.save(edit())
    store.letters.save([letter("a", envelope=BEFORE)])
    later = T0 + timedelta(hours=1)
    store.claims.take(operation(), token="t", lease_until=later, limit=1, now=T0)
    assert not store.edits.save(edit())
    assert store.letters.get("a").envelope.body == BEFORE.body
    assert store.edits.of_letter("a") == []


@pytest.mark.on_servers
def test_one_of_two_edits_at_once_is_saved(store):
    store.letters.save([letter("a", envelope=BEFORE)])
    with ThreadPoolExecutor(2) as pool:
        saved = list(pool.map(store.edits.save, [edit(b"1"), edit(b"2", who="bob")]))
    assert sorted(saved) == [False, True]
    assert len(store.edits.of_letter("a")) == 1


def test_an_edit_finds_a_letter_whose_id_is_too_long_for_its_column(store):
    store.letters.save([letter("x" * 400, envelope=BEFORE)])
    assert store.edits.save(edit(task_id="x" * 400))
    assert len(store.edits.of_letter("x" * 400)) == 1


def test_the_history_has_the_message_that_was_looked_at(store):
    store.letters.save([letter("a", envelope=BEFORE)])
    seen = digest_of(store.letters.get("a").envelope)
    assert store.edits.save(edit())
    (change,) = store.edits.of_letter("a")
    assert digest_of(change.before) == seen
    assert digest_of(store.letters.get("a").envelope) == digest_of(edit().after) != seen


def test_a_message_is_of_the_release_of_its_first_failure_until_it_is_edited(store):
    """A failed redrive keeps the message, whichever release ran it; upgrades depend on this."""
    store.letters.save([letter("a", envelope=BEFORE, release="2026.10")])
    claim = store.claims.take(
        operation("one"), token="t", lease_until=T0 + timedelta(hours=1), limit=9, now=T0
    )
    assert [one.message_release for one in claim.letters] == ["2026.10"]
    store.claims.confirm("one", "t", {"a": ""}, now=T0, is_all=True)
    again = letter("a", attempt(redrive=1, minutes=1), envelope=BEFORE, release="2026.12")
    store.letters.save([again])
    found = store.letters.get("a")
    assert (found.release, found.message_release) == ("2026.12", "2026.10")
    [read], _ = store.letters.read(["a"])
    assert read.message_release == "2026.10"
    assert store.edits.save(edit(release="2026.12"))
    assert store.letters.get("a").message_release == "2026.12"
