"""From which database a store with a read replica reads. Two files stand in for the servers."""

from __future__ import annotations

import logging

import pytest
from sqlalchemy import text

from celery_dlq.errors import RecordRefused, SchemaError, StoreTooSlow, StoreUnavailable
from celery_dlq.store.database.engine import Database
from celery_dlq.store.database.transactions import (
    FOLLOW_S,
    PAUSE_S,
    ReplicaTransactions,
    Transactions,
)
from celery_dlq.store.sql import SQLStore


class Clock:
    now = 1_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def both(tmp_path, clock):
    """The transactions of the primary and of the replica, each with a table that says which one it is."""
    made = []
    for name in ("primary", "replica"):
        database = Database(f"sqlite:///{tmp_path / name}.sqlite3")
        made.append(Transactions(database, value_limit=24, monotonic=clock))
        database.write(lambda it: it.execute(text("CREATE TABLE place (name TEXT)")))
        database.write(
            lambda it, name=name: it.execute(text(f"INSERT INTO place VALUES ('{name}')"))
        )
    yield made
    for one in made:
        one.close()


@pytest.fixture
def transactions(both, clock):
    return ReplicaTransactions(*both, monotonic=clock)


def place(connection):
    return connection.scalar(text("SELECT name FROM place"))


def test_reads_go_to_the_replica_and_writes_to_the_primary(transactions):
    assert transactions.read(place) == "replica"
    assert transactions.write(place) == "primary"


def test_a_process_that_has_written_reads_from_the_primary_until_the_replica_has_followed(
    transactions, clock
):
    transactions.write(place)
    assert transactions.read(place) == "primary"
    clock.now += FOLLOW_S - 0.1
    assert transactions.read(place) == "primary"
    clock.now += 0.1
    assert transactions.read(place) == "replica"


def test_a_write_that_failed_may_have_been_committed(transactions, both):
    def fail(_connection):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        both[0].write(fail)
    assert transactions.read(place) == "primary"


@pytest.mark.parametrize("error", [StoreUnavailable("it is away"), SchemaError("it is behind")])
def test_while_the_replica_fails_reads_go_to_the_primary(
    transactions, both, clock, monkeypatch, caplog, error
):
    def fail(_work):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(both[1], "read", fail)
        assert transactions.read(place) == "primary"
        assert transactions.following().trouble == str(error)
        clock.now += PAUSE_S
        assert transactions.read(place) == "primary"
    assert caplog.messages == [f"the read replica is not used until it works again: {error}"]
    assert transactions.read(place) == "primary", "it is not asked again at once"
    clock.now += PAUSE_S
    with caplog.at_level(logging.INFO):
        assert transactions.read(place) == "replica"
    assert caplog.messages[-1].endswith("is used again")
    assert not transactions.following().trouble


@pytest.mark.parametrize("error", [StoreTooSlow("too slow"), RecordRefused("not a value")])
def test_what_would_be_the_same_on_the_primary_is_not_asked_there(
    transactions, both, monkeypatch, error
):
    def fail(_work):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(both[1], "read", fail)
        with pytest.raises(type(error), match=str(error)):
            transactions.read(place)
    assert transactions.read(place) == "replica"


def test_a_file_does_not_say_how_far_it_is_behind(transactions):
    found = transactions.following()
    assert (found.lag, found.trouble) == (None, "")
    assert found.address.endswith("replica.sqlite3")


def test_a_store_without_a_replica_follows_nothing(tmp_path):
    assert SQLStore(f"sqlite:///{tmp_path}/store.sqlite3").following() is None
