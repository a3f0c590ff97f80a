from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

from factories import T0, envelope, letter, operation

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
        "how": "edit",
        "who": "ann",
        "at": T0 + timedelta(minutes=5),
    }
    return Edit(**{**values, **changes})


def test_an_edit_changes_the_message_and_keeps_the_old_one(store):
    store.save([letter("a", envelope=BEFORE)])
    assert store.save_edit(edit())
    found = store.get("a")
    assert (found.envelope, found.args, found.kwargs) == (edit().after, [18], {})
    (change,) = store.changes_of("a")
    assert repr(change) == repr(
        Change(
            task_id="a", at=edit().at, who="ann", how="edit", diff="- [17]\n+ [18]", before=BEFORE
        )
    )
    (row,) = store.audit().rows
    assert (row.act, row.who, row.count, row.detail) == ("edit", "ann", 1, {"letter": "a"})


def test_saved_twice_it_is_one_change(store):
    store.save([letter("a", envelope=BEFORE)])
    assert store.save_edit(edit())
    assert store.save_edit(edit())
    assert len(store.changes_of("a")) == len(store.audit().rows) == 1


def test_changes_are_told_oldest_first(store):
    store.save([letter("a", envelope=BEFORE)])
    store.save_edit(edit())
    store.save_edit(edit(before=edit().after, after=BEFORE, who="bob"))
    assert [(item.who, item.before.body) for item in store.changes_of("a")] == [
        ("ann", BEFORE.body), ("bob", edit().after.body),
    ]  # fmt: skip
    assert store.changes_of("b") == []


def test_what_somebody_else_has_changed_stays(store):
    store.save([letter("a", envelope=BEFORE)])
    assert store.save_edit(edit())
    assert not store.save_edit(edit(b"[[19], {}, {}]", who="bob"))
    assert store.get("a").envelope == edit().after
    assert [item.who for item in store.changes_of("a")] == ["ann"]


def test_only_a_letter_that_waits_is_changed(store):
    assert not store.save_edit(edit())
    store.save([letter("a", envelope=BEFORE)])
    later = T0 + timedelta(hours=1)
    store.claim_for(operation(), token="t", lease_until=later, limit=1, now=T0)
    assert not store.save_edit(edit())
    assert store.get("a").envelope.body == BEFORE.body
    assert store.changes_of("a") == []


def test_of_two_edits_at_once_one_is_saved(store):
    store.save([letter("a", envelope=BEFORE)])
    with ThreadPoolExecutor(2) as pool:
        saved = list(pool.map(store.save_edit, [edit(b"1"), edit(b"2", who="bob")]))
    assert sorted(saved) == [False, True]
    assert len(store.changes_of("a")) == 1


def test_an_edit_finds_a_letter_whose_id_is_too_long_for_its_column(store):
    store.save([letter("x" * 400, envelope=BEFORE)])
    assert store.save_edit(edit(task_id="x" * 400))
    assert len(store.changes_of("x" * 400)) == 1
