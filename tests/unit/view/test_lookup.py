"""Letters and groups by a prefix; the command line's tests have the operations."""

from __future__ import annotations

import pytest
from support.factories import T0, letter

from celery_dlq.errors import (
    AmbiguousId,
    LetterDeleted,
    UnknownGroup,
    UnknownLetter,
    UnknownOperation,
)
from celery_dlq.store.base import Filter
from celery_dlq.store.sql import SQLStore
from celery_dlq.view import lookup

UNKNOWN = [
    (lookup.letter_id, UnknownLetter, "No dead letter has an id that begins with"),
    (lookup.letter, UnknownLetter, "No dead letter has an id that begins with"),
    (lookup.letter_to_show, UnknownLetter, "No dead letter has an id that begins with"),
    (lookup.operation, UnknownOperation, "No operation has an id that begins with"),
    (lookup.fingerprint, UnknownGroup, "No group has a fingerprint that begins with"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = SQLStore(f"sqlite:///{tmp_path_factory.mktemp('lookup') / 'dlq.sqlite3'}")
    store.letters.save([letter("order", fingerprint="9c1e"), letter("order-1", fingerprint="9c1f")])
    yield store
    store.close()


def test_a_unique_prefix_or_a_full_id_is_enough(store):
    assert lookup.letter_id(store, "order-") == "order-1"
    assert lookup.letter(store, "order").task_id == "order"
    assert lookup.fingerprint(store, "9c1e") == "9c1e"
    assert lookup.group(store, "9c1f", T0).fingerprint == "9c1f"


@pytest.mark.parametrize(
    ("look_up", "prefix", "said"),
    [
        (lookup.letter, "ord", "More than one id begins with 'ord': order, order-1; give"),
        (lookup.fingerprint, "9c", "More than one group begins with '9c': 9c1e, 9c1f; give"),
    ],
)
def test_an_ambiguous_prefix_lists_the_candidates(store, look_up, prefix, said):
    with pytest.raises(AmbiguousId, match=said):
        look_up(store, prefix)


@pytest.mark.parametrize(("look_up", "error", "said"), UNKNOWN)
@pytest.mark.parametrize("prefix", ["", "zz", "%"])
def test_an_unknown_prefix_names_the_command_that_lists(store, look_up, error, said, prefix):
    with pytest.raises(error, match=rf"{said} '{prefix}'; see: dlq list$"):
        look_up(store, prefix, see="dlq list")
    with pytest.raises(error, match=rf"{said} '{prefix}'\.$"):
        look_up(store, prefix)


def test_an_error_repeats_a_part_of_a_long_prefix_only(store):
    with pytest.raises(UnknownLetter) as caught:
        lookup.letter_id(store, "x" * 5_000)
    assert len(str(caught.value)) < 200


@pytest.fixture
def empty(own_store):
    return own_store


@pytest.fixture
def deleted(empty):
    """Lets a person delete letters, after they were discarded."""

    def deleted(*ids, why=""):
        empty.letters.save([letter(task_id) for task_id in ids])
        empty.closing.discard(Filter(ids=ids), who="bob", why="", now=T0)
        assert empty.deleting.delete(Filter(ids=ids), who="ann", why=why, now=T0) == len(ids)

    return deleted


@pytest.mark.parametrize(("why", "end"), [("", ""), ("test data", ": test data")])
def test_a_letter_that_was_deleted_says_by_whom(empty, deleted, why, end):
    deleted("gone", why=why)
    said = f"The letter 'gone' was deleted by ann on 2026-11-21T12:00:00+00:00{end}."
    with pytest.raises(LetterDeleted) as caught:
        lookup.letter_to_show(empty, "gone", see="dlq list")
    assert str(caught.value) == said


def test_letters_that_were_deleted_together_are_unknown(empty, deleted):
    deleted("this", "that")
    for task_id in ("this", "that", ""):
        with pytest.raises(UnknownLetter, match="No dead letter has an id") as caught:
            lookup.letter_to_show(empty, task_id)
        assert type(caught.value) is UnknownLetter


def test_a_letter_with_the_beginning_of_a_deleted_id_is_found(empty, deleted):
    deleted("order-")
    empty.letters.save([letter("order-1")])
    assert lookup.letter_to_show(empty, "order-").task_id == "order-1"


def test_a_letter_that_died_again_after_its_deletion_is_found(empty, deleted):
    deleted("again")
    empty.letters.save([letter("again")])
    assert lookup.letter_to_show(empty, "again").task_id == "again"
