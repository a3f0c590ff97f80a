"""Contents in rows are sealed for their owner; keys of persons and of hashes are in the store."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from celery_dlq.base.sealing import Keyring, is_sealed
from celery_dlq.errors import ContentsSealed
from celery_dlq.store.database import tables
from celery_dlq.store.database.sealing import sealing_of
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
        row = sealing.seal(tables.attempt, ROW, "4711")
        return row, sealing.open(tables.attempt, row, "4711")

    row, opened = sealed.transactions.write(work)
    assert is_sealed(row["message"])
    assert {**row, "message": "no room"} == ROW == opened


def test_contents_of_another_owner_cannot_be_read(sealed):
    def work(connection):
        sealing = sealing_of(connection)
        sealing.open(tables.attempt, sealing.seal(tables.attempt, ROW, "4711"), "4712")

    with pytest.raises(ContentsSealed, match="moved here"):
        sealed.transactions.read(work)


@pytest.mark.clear("it needs a store without keys")
def test_without_a_ring_clear_rows_are_read_and_sealed_ones_are_not(sealed, store):
    row = sealed.transactions.read(lambda c: sealing_of(c).seal(tables.attempt, ROW, "4711"))

    def read(given):
        return store.transactions.read(lambda c: sealing_of(c).open(tables.attempt, given, "4711"))

    assert read(ROW) == ROW
    with pytest.raises(ContentsSealed, match="set dlq_encryption_keys"):
        read(row)
    assert read({**row, "sealed_by": ""})["message"] == row["message"]


def test_a_person_has_one_key_and_its_destruction_erases(sealed):
    def seal(connection):
        sealing = sealing_of(connection)
        person = sealing.person("customer 7")
        assert person.secret == sealing.person("customer 7").secret
        assert person.secret != sealing.person("customer 8").secret
        return person, sealing.seal(tables.attempt, ROW, "4711", person)

    person, row = sealed.transactions.write(seal)

    def read(connection):
        sealing = sealing_of(connection)
        assert sealing.person_of(f"@{person.id.hex()}") == person
        return sealing.open(tables.attempt, row, "4711")

    assert sealed.transactions.read(read) == ROW
    is_it = tables.key.c.id == person.id.hex()
    sealed.transactions.write(lambda c: c.execute(sa.delete(tables.key).where(is_it)))
    with pytest.raises(ContentsSealed, match="destroyed"):
        sealed.transactions.read(read)


def test_processes_that_make_a_person_s_key_at_once_get_one_key(sealed, database_url):
    def make(_):
        with contextlib.closing(SQLStore(database_url, ring=RING)) as one:
            return one.transactions.write(lambda c: sealing_of(c).person("customer 7"))

    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(make, range(4)))) == 1


def test_the_key_of_hashes_is_made_once_by_a_writer(sealed):
    def hash_key(connection):
        return sealing_of(connection).hash_key

    assert sealed.transactions.read(hash_key) == b""
    made = sealed.transactions.write(hash_key)
    assert len(made) == 32
    assert sealed.transactions.read(hash_key) == made
