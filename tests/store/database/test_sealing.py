"""Contents in rows are sealed for their owner; keys of persons and of hashes are in the store."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from celery_dlq.base.sealing import Keyring, is_sealed, person_in
from celery_dlq.errors import ContentsSealed
from celery_dlq.store.database import tables
from celery_dlq.store.database.sealing import CONTENTS, sealing_of
from celery_dlq.store.sql import SQLStore

RING = Keyring({"new": b"n" * 32})
ROW = {"task_id": "4711", "message": "no room", "verdict": "terminal"}

pytestmark = pytest.mark.on_servers


@pytest.fixture
def sealed(store, database_url):
    """The store with a ring."""
    with contextlib.closing(SQLStore(database_url, ring=RING)) as with_ring:
        yield with_ring


def test_contents_are_sealed_and_the_rest_is_clear(sealed):
    def work(connection):
        sealing = sealing_of(connection)
        row = sealing.seal(tables.attempt, ROW)
        return row, sealing.open(tables.attempt, row)

    row, opened = sealed.transactions.write(work)
    assert is_sealed(row["message"])
    assert {**row, "message": "no room"} == ROW == opened


def test_contents_of_another_owner_cannot_be_read(sealed):
    def work(connection):
        sealing = sealing_of(connection)
        row = sealing.seal(tables.attempt, ROW)
        sealing.open(tables.attempt, {**row, "task_id": "4712"})

    with pytest.raises(ContentsSealed, match="moved here"):
        sealed.transactions.read(work)


@pytest.mark.clear("it needs a store without keys")
def test_without_a_ring_clear_rows_are_read_and_sealed_ones_are_not(sealed, store):
    row = sealed.transactions.read(lambda c: sealing_of(c).seal(tables.attempt, ROW))

    def read(table, given):
        return store.transactions.read(lambda c: sealing_of(c).open(table, given))

    assert read(tables.attempt, ROW) == ROW
    with pytest.raises(ContentsSealed, match="set dlq_encryption_keys"):
        read(tables.attempt, row)
    assert read(tables.letter, {**row, "sealed_by": ""})["message"] == row["message"]


@pytest.mark.clear("it needs a store without keys")
@pytest.mark.parametrize("is_marked", [False, True])
def test_a_clear_value_that_looks_sealed_stays_clear(sealed, store, is_marked):
    of, retry = tables.parked, {"task_id": "1", "message": "no room", "args": "[]", "kwargs": "{}"}
    given = sealed.transactions.read(
        lambda c: sealing_of(c).seal(of, {**retry, "record": b"{}", "body": b"1"})
    )
    if is_marked:
        given = store.transactions.read(lambda c: sealing_of(c).seal(of, given))
    written = store.transactions.read(lambda c: sealing_of(c).seal(of, given))
    assert not any(is_sealed(written[name]) for name in CONTENTS[of])
    assert store.transactions.read(lambda c: sealing_of(c).open(of, written)) == given
    # A rotation encrypts the value that it was.
    rotated = sealed.transactions.read(lambda c: sealing_of(c).seal_again(of, written))
    assert sealed.transactions.read(lambda c: sealing_of(c).open(of, rotated)) == given


def test_a_person_has_one_key_and_its_destruction_erases(sealed):
    def seal(connection):
        sealing = sealing_of(connection)
        label = sealing.label_for("customer 7")
        assert label == sealing.label_for("customer 7") != sealing.label_for("customer 8")
        return label, sealing.seal(tables.attempt, ROW, label)

    label, row = sealed.transactions.write(seal)
    assert label == f"@{person_in(row['message']).hex()}"

    def read(connection):
        return sealing_of(connection).open(tables.attempt, row)

    assert sealed.transactions.read(read) == ROW
    is_it = tables.key.c.id == label[1:]
    sealed.transactions.write(lambda c: c.execute(sa.delete(tables.key).where(is_it)))
    with pytest.raises(ContentsSealed, match="destroyed"):
        sealed.transactions.read(read)


def test_processes_that_make_a_person_s_key_at_once_get_one_key(sealed, database_url):
    def make(_):
        def seal(connection):
            sealing = sealing_of(connection)
            return sealing.seal(tables.attempt, ROW, sealing.label_for("customer 7"))

        with contextlib.closing(SQLStore(database_url, ring=RING)) as one:
            return one.transactions.write(seal)

    with ThreadPoolExecutor(4) as threads:
        rows = [*threads.map(make, range(4))]
    read = sealed.transactions.read(lambda c: sealing_of(c).shown(tables.attempt, rows))
    assert read == [ROW] * 4


def test_the_key_of_hashes_is_made_once_by_a_writer(sealed):
    def hash_key(connection):
        return sealing_of(connection).hash_key

    assert sealed.transactions.read(hash_key) == b""
    made = sealed.transactions.write(hash_key)
    assert len(made) == 32
    assert sealed.transactions.read(hash_key) == made
