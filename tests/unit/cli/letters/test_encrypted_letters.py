"""Letters whose contents are encrypted, on the command line: with the key, and without it."""

from __future__ import annotations

import pytest
from support.factories import attempt, envelope, letter

from celery_dlq.base.sealing import Keyring

RING = Keyring({"new": b"n" * 32})
SECRET = "4929-1111"


@pytest.fixture
def saved(store, queue):
    """An encrypted letter."""
    queue.keyring = store.transactions.ring = RING
    made = letter(
        "a1", attempt(message=SECRET), args=[SECRET], traceback=SECRET, log=SECRET,
        envelope=envelope("a1", headers={"customer": SECRET}),
    )  # fmt: skip
    store.letters.save([made])
    return store


@pytest.fixture
def locked(saved, queue):
    """The store of a process without the key."""
    queue.keyring = saved.transactions.ring = None
    return saved


def test_with_the_key_it_is_shown_with_the_label(run, read, saved):
    said = run("show", "a1").stdout
    assert SECRET in said
    assert f"with key {RING.label}" in said
    record = read("show", "a1")
    assert (record["sealed_by"], record["unreadable"]) == (RING.label, "")


def test_without_the_key_screens_say_why_there_are_no_contents(run, read, locked):
    said = run("show", "a1").stdout
    assert SECRET not in said
    assert "set dlq_encryption_keys here, too" in said
    assert "celery dlq redrive a1" in said
    assert "0 bytes" not in said
    [row] = read("list")
    assert "set dlq_encryption_keys here, too" in row["unreadable"]
    assert (row["message"], row["args"], row["task"]) == ("", None, "shop.charge")
    assert "The contents are encrypted" in run("list").stdout
    assert read("show", "a1")["unreadable"] == row["unreadable"]
    assert run("groups").exit_code == 0


def test_a_search_for_a_text_names_the_ways_that_work(run, saved):
    result = run("list", "--search", SECRET)
    assert (result.exit_code, "--value or --arg" in result.stderr) == (2, True)
    assert "a1" in run("list", "--value", SECRET).stdout
