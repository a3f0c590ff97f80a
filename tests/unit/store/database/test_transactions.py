from __future__ import annotations

from functools import partial

import pytest
from sqlalchemy import exc, text, update
from support.servers.databases import drop_all

from celery_dlq.errors import RecordRefused, SchemaError, StoreUnavailable
from celery_dlq.store.database import schema
from celery_dlq.store.database.engine import MAX_TRIES, Database
from celery_dlq.store.database.tables import version as version_table
from celery_dlq.store.database.transactions import (
    StoreRole,
    Transactions,
    after_commit,
    reads,
    writes,
)


class Numbers(StoreRole):
    """A role that has what its methods were called with."""

    #: An item for each time that another writer is in the way.
    busy = ()

    @reads
    def double(self, number, *, plus=0):
        """Twice the number."""
        return self.connection.execute(text(f"SELECT {number} * 2 + {plus}")).scalar_one()

    @writes
    def double_when_free(self, number):
        if self.busy:
            self.busy.pop()
            raise exc.IntegrityError("", None, Exception("another one was first"))
        return self.connection.execute(text(f"SELECT {number} * 2")).scalar_one()

    @writes
    def say_later(self, said):
        after_commit(self.connection, partial(said.append, len(self.busy)))
        return self.double_when_free.__wrapped__(self, 1)


@pytest.fixture
def transactions(tmp_path):
    database = Database(f"sqlite:///{tmp_path / 'dlq.sqlite3'}", sleep=lambda _seconds: None)
    yield Transactions(database, value_limit=24)
    database.close()


def test_a_method_has_the_connection_of_its_transaction(transactions):
    numbers = Numbers(transactions)
    assert numbers.double(21) == 42
    assert numbers.double(20, plus=2) == 42
    assert Numbers.double.__doc__ == "Twice the number."


def test_a_method_that_writes_is_begun_again_when_another_writer_was_in_the_way(transactions):
    numbers = Numbers(transactions)
    numbers.busy = [1, 2]
    assert numbers.double_when_free(21) == 42
    assert numbers.busy == []


def test_only_the_transaction_that_is_committed_makes_its_later_calls(transactions):
    numbers, said = Numbers(transactions), []
    numbers.busy = [1, 2]
    assert numbers.say_later(said) == 2
    assert said == [0]
    numbers.busy = [1] * MAX_TRIES
    with pytest.raises(RecordRefused):
        numbers.say_later(said)
    assert said == [0]


def test_the_schema_is_checked_before_the_first_transaction_and_then_no_more(
    transactions, monkeypatch
):
    checked = []
    monkeypatch.setattr(schema, "check", checked.append)
    numbers = Numbers(transactions)
    assert checked == []
    numbers.double(1)
    numbers.double_when_free(1)
    assert checked == [transactions.database]


class Clock:
    """A clock that only the test moves."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def seen(tmp_path, clock, monkeypatch):
    """Transactions on a store, and the times at which they have read the version of its schema."""
    database = Database(f"sqlite:///{tmp_path / 'dlq.sqlite3'}", sleep=lambda _seconds: None)
    seen = Transactions(database, value_limit=24, monotonic=clock)
    seen.check_schema()
    seen.looks = []
    current = schema.current
    monkeypatch.setattr(
        schema, "current", lambda connection: seen.looks.append(clock.now) or current(connection)
    )
    yield seen
    database.close()


def set_version(transactions, version):
    transactions.database.write(
        lambda connection: connection.execute(update(version_table).values(version_num=version))
    )


class Fails(StoreRole):
    """A role whose methods fail as one does that meets what a newer release has written."""

    @reads
    def read_unknown(self, error):
        raise error

    @writes
    def write_unknown(self, error):
        raise error


def test_the_version_is_read_once_a_minute(seen, clock):
    numbers = Numbers(seen)
    for second in range(181):
        clock.now = float(second)
        numbers.double(1)
        numbers.double_when_free(1)
    assert seen.looks == [60.0, 120.0, 180.0]


def test_a_schema_that_becomes_newer_ends_all_transactions_within_a_minute(seen, clock):
    numbers = Numbers(seen)
    set_version(seen, "9999")
    assert numbers.double(1) == 2
    clock.now = 60.0
    for call in (numbers.double, numbers.double_when_free, numbers.double):
        with pytest.raises(
            SchemaError, match=f"at 9999, newer than the {schema.HEAD} of this release"
        ):
            call(1)
    set_version(seen, schema.HEAD)
    assert numbers.double(1) == 2


@pytest.mark.parametrize("method", [Fails.read_unknown, Fails.write_unknown])
@pytest.mark.parametrize(
    "error",
    [ValueError("'split' is not a valid State"), RecordRefused("NOT NULL"), SchemaError("x")],
)
def test_an_error_because_of_a_newer_schema_names_the_versions(seen, method, error):
    with pytest.raises(type(error), match=str(error)):
        method(Fails(seen), error)
    set_version(seen, "9999")
    with pytest.raises(SchemaError, match="at 9999, newer than") as caught:
        method(Fails(seen), error)
    assert caught.value.__context__ is error
    with pytest.raises(SchemaError, match="at 9999, newer than"):
        Numbers(seen).double(1)


def test_a_store_that_is_away_is_not_asked_for_its_version(seen):
    with pytest.raises(StoreUnavailable):
        Fails(seen).read_unknown(StoreUnavailable())
    assert seen.looks == []


def test_a_look_makes_no_schema(seen, clock):
    drop_all(seen.database)
    clock.now = 60.0
    with pytest.raises(SchemaError, match="does not fit"):
        seen.read(lambda connection: connection.execute(text("SELECT * FROM celery_dead_letter")))
    assert seen.database.read(schema.current) is None
