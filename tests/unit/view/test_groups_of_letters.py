"""The newest letters of a group, and what they have in common."""

import pytest
from support.factories import T0, attempt, letter, operation
from support.stores import redriving

from celery_dlq.model.letter import Outcome
from celery_dlq.store.base import Filter
from celery_dlq.view import groups
from celery_dlq.view.groups import sample_of


@pytest.fixture
def store(own_store):
    return own_store


def save(store, number, tenant, **changes):
    kwargs = {"tenant": tenant, "order": number}
    store.letters.save(
        [letter(f"n{number}", attempt(minutes=number), args=[], kwargs=kwargs, **changes)]
    )


def test_arguments_that_at_least_half_of_the_letters_have_are_shared(store):
    for number in range(10):
        save(store, number, "acme" if number < 9 else "globex")
    found = sample_of(store, "9c1e0000deadbeef")
    assert [(one.name, one.value, one.letters) for one in found.shared] == [("tenant", "acme", 9)]
    assert found.newest.task_id == "n9"
    assert found.newest.traceback


def test_places_are_counted_by_kind(store):
    for number, release in enumerate(["1.4.1", "1.4.2", "1.4.2"]):
        save(store, number, "acme", release=release, tags=("billing",))
    found = sample_of(store, "9c1e0000deadbeef").found_in
    counted = {(one.name, one.value): one.letters for one in found}
    assert counted["release", "1.4.2"] == 2
    assert counted["tag", "billing"] == 3
    assert counted["queue", "celery"] == 3


def test_only_the_newest_letters_are_read(store, monkeypatch):
    monkeypatch.setattr(groups, "SAMPLE", 2)
    for number in range(5):
        save(store, number, "acme")
    found = sample_of(store, "9c1e0000deadbeef")
    assert [one.task_id for one in found.letters] == ["n4", "n3"]


def test_open_letters_come_first(store):
    """The newest letters were repaired and have succeeded; the open ones failed with another value."""
    for number in range(5):
        save(store, number, "acme" if number < 3 else "globex")
    for number in (3, 4):
        redriving.claim(
            store, Filter(ids=(f"n{number}",)), token=f"t{number}", lease_until=T0, limit=1, now=T0
        )
        done = Outcome(task_id=f"n{number}", redrive=1, succeeded_at=T0, worker="w")
        store.letters.record_outcomes([done])
    found = sample_of(store, "9c1e0000deadbeef")
    assert [one.task_id for one in found.letters] == ["n2", "n1", "n0"]
    assert found.newest.task_id == "n2"
    assert [(one.value, one.letters) for one in found.shared] == [("acme", 3)]
    assert found.redrives.succeeded == 2, "closed letters say how redrives ended"
    store.closing.discard(Filter(group="9c1e"), who="ann", why="", now=T0)
    assert len(sample_of(store, "9c1e0000deadbeef").letters) == 5, "none is open"


def test_operations_that_chose_the_group_are_listed(store):
    save(store, 1, "acme")
    store.operations.create(operation("0a", wanted=Filter(group="9c1e0000deadbeef")))
    store.operations.create(operation("0b", wanted=Filter(group="aaaa")))
    found = sample_of(store, "9c1e0000deadbeef")
    assert [one.id for one in found.operations] == ["0a"]
    assert found.redrives.sent == 0
    assert found.redrives.success_rate is None


def test_operations_that_sent_a_letter_of_the_group_concern_it(store):
    save(store, 1, "acme")
    for name, wanted in (("0a", {"task": "shop.charge"}), ("0b", {"group": "9c1e"})):
        store.operations.create(operation(name, wanted=Filter(**wanted)))
    store.operations.create(operation("0c", wanted=Filter(task="shop.mail")))
    redriving.claim(store, Filter(task="shop.charge"), token="0a", lease_until=T0, limit=9, now=T0)
    found = sample_of(store, "9c1e0000deadbeef")
    assert sorted(one.id for one in found.concerned) == ["0a", "0b"]
    assert [one.id for one in found.operations] == ["0b"]


def test_a_group_without_letters(store):
    store.check_schema()
    found = sample_of(store, "gone")
    assert (found.letters, found.newest, list(found.shared), list(found.found_in)) == (
        (),
        None,
        [],
        [],
    )
