"""Keys rotate while letters are read and written, and the key of a person can be destroyed."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
import sqlalchemy as sa
from support.factories import T0, attempt, letter
from support.stores.writing import submit, wait_until

from celery_dlq import Filter
from celery_dlq.base.sealing import Keyring, is_sealed
from celery_dlq.errors import ContentsSealed
from celery_dlq.spool.directory import Spool
from celery_dlq.store.base import Pauses
from celery_dlq.store.database import tables
from celery_dlq.store.database.sealing import CONTENTS, sealing_of
from celery_dlq.store.sql import SQLStore
from celery_dlq.worker.writing.writer import Writer

OLD, NEW = {"old": b"o" * 32}, {"new": b"n" * 32}

NEW_LABEL = Keyring(NEW).label

pytestmark = pytest.mark.on_servers


@pytest.fixture
def with_keys(store, database_url):
    """Opens the store with these keys."""
    with contextlib.ExitStack() as stores:

        def opened(**keys):
            ring = Keyring(keys) if keys else None
            return stores.enter_context(contextlib.closing(SQLStore(database_url, ring=ring)))

        yield opened


def died(number, **changes):
    return letter(
        task_id=f"task-{number:04}",
        message=f"no room for {number}",
        kwargs={"order": number},
        **changes,
    )


def rotate(store, on_progress=lambda _rows: None):
    return store.keys.rotate(who="anna", on_progress=on_progress, pause=lambda _seconds: None)


def values_of(store):
    """All values in columns with contents, each with its table and column."""

    def read(connection):
        return [
            (table.name, name, value)
            for table, names in CONTENTS.items()
            for row in connection.execute(sa.select(table)).mappings()
            for name in names
            if (value := row[name])
        ]

    return store.transactions.read(read)


def test_the_next_key_seals_what_was_clear_and_what_the_old_key_sealed(with_keys):
    with_keys().letters.save([died(number) for number in range(5)])
    old = with_keys(**OLD)
    old.letters.save([died(number) for number in range(5, 250)])
    old.closing.discard(Filter(ids=("task-0007",)), who="anna", why="sold out", now=T0)
    both = with_keys(**NEW, **OLD)
    assert sum(letters for letters, _keys in both.keys.counts().values()) == 250
    assert both.keys.left() >= 250

    seen = []
    assert rotate(both, on_progress=seen.append) == seen[-1] >= 250
    assert both.keys.left() == 0
    assert both.keys.counts() == {NEW_LABEL: (250, 1)}
    ring = Keyring(NEW)
    clear = [one for one in values_of(both) if not (is_sealed(one[2]) and ring.is_current(one[2]))]
    assert clear == []

    only_new = with_keys(**NEW)
    assert {one.message for one in only_new.letters.find(Filter(), limit=500).letters} == {
        f"no room for {number}" for number in range(250) if number != 7
    }
    assert only_new.letters.get("task-0003").kwargs == {"order": 3}
    # The values of a letter that was clear were hashed again.
    for number in (3, 200):
        (found,) = only_new.letters.find(Filter(values=(str(number),)), limit=5).letters
        assert found.task_id == f"task-{number:04}"
    assert only_new.audit.find(act="rotate").rows[0].who == "anna"
    assert rotate(both) == 0
    assert both.audit.verify().breaks == []


def test_a_text_that_looks_encrypted_is_encrypted_by_a_rotation(with_keys):
    hostile = Keyring(NEW).seal("no room", "elsewhere")
    first = died(1).with_(message=hostile, attempts=(attempt(message=hostile),))
    with_keys().letters.save([first])
    store = with_keys(**NEW)
    rotate(store)
    found = store.letters.get("task-0001")
    assert [found.message, found.attempts[0].message, found.unreadable] == [hostile, hostile, ""]
    assert hostile not in {value for _table, _column, value in values_of(store)}


def test_a_rotation_that_is_killed_after_any_step_is_begun_again(with_keys):
    old, both = with_keys(**OLD), with_keys(**NEW, **OLD)
    old.letters.save([died(number) for number in range(150)])
    left = iter(range(0))

    def stop(_rows):
        if next(left, None) is None:
            raise KeyboardInterrupt

    for tries in range(100):
        left = iter(range(tries))
        with contextlib.suppress(KeyboardInterrupt):
            rotate(both, on_progress=stop)
            break
        readable = both.letters.find(Filter(), limit=200).letters
        assert sum(one.message.startswith("no room") for one in readable) == 150
    assert both.keys.left() == 0
    assert tries > 10
    found = with_keys(**NEW).letters.find(Filter(), limit=200).letters
    assert [one.unreadable for one in found] == [""] * 150


def test_what_an_old_worker_writes_after_a_rotation_is_sealed_by_the_next_one(with_keys):
    old, both = with_keys(**OLD, **NEW), with_keys(**NEW, **OLD)
    first = died(1)
    old.letters.save([first])
    rotate(both)
    later = replace(attempt(2, redrive=0, minutes=9), message="no room again")
    again = {"attempts": (*first.attempts, later), "last_failed_at": later.failed_at}
    old.letters.save([first.with_(message="no room again", **again)])
    assert "add it again" in with_keys(**NEW).letters.get("task-0001").unreadable
    assert rotate(both) >= 1
    found = with_keys(**NEW).letters.get("task-0001")
    assert [found.message, *(one.message for one in found.attempts)] == [
        "no room again", "bad currency", "no room again",
    ]  # fmt: skip


def test_a_clear_letter_of_a_person_gets_the_person_s_key_when_it_fails_again(with_keys):
    first = died(1)
    with_keys().letters.save([first])
    later = attempt(2, minutes=9)
    again = {"attempts": (*first.attempts, later), "last_failed_at": later.failed_at}
    store = with_keys(**OLD)
    store.letters.save([first.with_(subject="customer 7", **again)])
    assert store.keys.counts()["@"] == (1, 0)
    store.keys.destroy(store.keys.person_id("customer 7"))
    assert "destroyed" in store.letters.get("task-0001").unreadable


def test_what_a_missing_key_has_sealed_stays_and_is_counted(with_keys):
    with_keys(**OLD).letters.save([died(1)])
    only_new = with_keys(**NEW)
    rotate(only_new)
    assert only_new.keys.left() > 0
    assert "not in dlq_encryption_keys" in only_new.letters.get("task-0001").unreadable
    assert with_keys(**NEW, **OLD).letters.get("task-0001").message == "no room for 1"


def test_a_store_whose_key_of_hashes_cannot_be_read_takes_no_letter(with_keys):
    """The letter waits in the spool for the key; without the hashes, searches and erasures would miss it."""
    with_keys(**OLD).letters.save([died(1)])
    with pytest.raises(ContentsSealed, match="add it again"):
        with_keys(**NEW).letters.save([died(2)])
    assert len(with_keys(**NEW, **OLD).letters.find(Filter()).letters) == 1


def test_a_letter_waits_in_the_spool_until_the_key_of_hashes_is_back(with_keys, tmp_path):
    with_keys(**OLD).letters.save([died(1)])

    def worker(**keys):
        spool = Spool(tmp_path / "spool", ring=Keyring(keys))
        return Writer(lambda: with_keys(**keys), spool, size=9, batch_size=9)

    lacking = worker(**NEW)
    assert submit(lacking, died(2)) == ["task-0002"]
    lacking.stop()
    both = with_keys(**NEW, **OLD)
    assert both.letters.get("task-0002") is None
    [line] = [path.read_bytes() for path in (tmp_path / "spool").glob("*.jsonl")]
    assert b"no room" not in line

    complete = worker(**NEW, **OLD)
    complete.start()
    wait_until(lambda: both.letters.get("task-0002") is not None)
    complete.stop()
    assert both.letters.get("task-0002").message == "no room for 2"
    assert both.letters.find(Filter(values=("2",)), limit=5).letters[0].task_id == "task-0002"


def test_without_a_ring_nothing_rotates(with_keys):
    with pytest.raises(ContentsSealed, match="set dlq_encryption_keys"):
        with_keys().keys.rotate(who="anna")


def test_a_person_s_key_rotates_and_its_letters_stay_readable(with_keys):
    with_keys(**OLD).letters.save([died(1, subject="customer 7")])
    both = with_keys(**NEW, **OLD)
    assert both.keys.counts()["@"] == (1, 0)
    rotate(both)
    assert both.keys.left() == 0
    assert with_keys(**NEW).letters.get("task-0001").message == "no room for 1"


def test_a_person_s_key_that_cannot_be_read_is_not_taken_for_a_destroyed_one(with_keys):
    about = {"subject": "customer 7"}
    with_keys(**OLD).letters.save([died(1, **about), died(2, **about)])
    for one in with_keys(**NEW).letters.find(Filter()).letters:
        assert "add it again" in one.unreadable


def test_destroying_a_person_s_key_erases_letters_that_stay(with_keys):
    store = with_keys(**OLD)
    store.letters.save([died(1, subject="customer 7"), died(2, subject="customer 8"), died(3)])
    person = store.keys.person_id("customer 7")
    assert store.keys.has_person(person)
    assert store.keys.destroy(person)
    assert not store.keys.has_person(person)
    assert not store.keys.destroy(person)
    erased = store.letters.get("task-0001")
    assert "destroyed" in erased.unreadable
    assert (erased.message, erased.kwargs, erased.envelope.body) == ("", None, b"")
    assert [store.letters.get(f"task-000{n}").message for n in (2, 3)] == [
        "no room for 2",
        "no room for 3",
    ]


def test_a_new_failure_of_a_person_whose_key_was_destroyed_gets_a_new_key(with_keys):
    store = with_keys(**OLD)
    first = died(1, subject="customer 7")
    store.letters.save([first])
    store.keys.destroy(store.keys.person_id("customer 7"))
    store.letters.save([died(2, subject="customer 7")])
    assert store.letters.get("task-0002").message == "no room for 2"
    assert store.letters.get("task-0001").unreadable


def test_one_rotation_is_for_all_namespaces_and_audited_once(with_keys, database_url):
    with contextlib.ExitStack() as stores:

        def of(names, ring):
            store = SQLStore(database_url, ring=Keyring(ring), namespaces=names)
            return stores.enter_context(contextlib.closing(store))

        with_keys(**OLD)
        for number, name in enumerate("ab"):
            of([name], OLD).letters.save([died(number, namespace=name)])
        everywhere = of(None, NEW | OLD)
        assert rotate(everywhere) > 0
        assert everywhere.keys.left() == 0
        assert len(everywhere.audit.find(act="rotate").rows) == 1
        assert of(["b"], NEW).letters.get("task-0001").message == "no room for 1"


def test_without_the_keys_what_is_written_of_a_person_is_not_sealed_and_raises_nothing(with_keys):
    with_keys(**OLD).letters.save([died(1, subject="customer 7")])
    store = with_keys()
    row = {"task_id": "1", "message": "no room"}
    written = store.transactions.read(
        lambda connection: sealing_of(connection).seal(tables.attempt, row, "@" + "0" * 32)
    )
    assert written == row


def test_a_rotation_pauses_after_each_step_for_three_times_as_long(with_keys, monkeypatch):
    with_keys(**OLD).letters.save([died(number) for number in range(250)])
    store = with_keys(**NEW, **OLD)
    clock, pauses = [0.0], []
    monkeypatch.setattr(
        "celery_dlq.store.keys.Pauses", lambda pause: Pauses(pause, lambda: clock[0])
    )

    def step(_rows):
        clock[0] += 2.0

    def pause(seconds):
        pauses.append(seconds)
        clock[0] += seconds

    store.keys.rotate(who="anna", on_progress=step, pause=pause)
    assert len(pauses) > 5
    assert set(pauses) == {6.0}
