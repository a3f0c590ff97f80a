from __future__ import annotations

import pytest
from sqlalchemy import exc, text

from celery_dlq.store.database import schema
from celery_dlq.store.database.engine import Database
from celery_dlq.store.database.transactions import StoreRole, Transactions, reads, writes


class Numbers(StoreRole):
    """A role that has what its methods were called with."""

    busy = 0

    @reads
    def double(self, connection, number, *, plus=0):
        """Twice the number."""
        return connection.execute(text(f"SELECT {number} * 2 + {plus}")).scalar_one()

    @writes
    def double_when_free(self, connection, number):
        if self.busy:
            self.busy -= 1
            raise exc.IntegrityError("", None, Exception("another one was first"))
        return connection.execute(text(f"SELECT {number} * 2")).scalar_one()


@pytest.fixture
def transactions(tmp_path):
    database = Database(f"sqlite:///{tmp_path / 'dlq.sqlite3'}", sleep=lambda _seconds: None)
    yield Transactions(database, value_limit=24)
    database.close()


def test_a_method_is_called_without_its_connection(transactions):
    numbers = Numbers(transactions)
    assert numbers.double(21) == 42
    assert numbers.double(20, plus=2) == 42
    assert Numbers.double.__doc__ == "Twice the number."


def test_a_method_that_writes_is_begun_again_when_another_writer_was_in_the_way(transactions):
    numbers = Numbers(transactions)
    numbers.busy = 2
    assert numbers.double_when_free(21) == 42
    assert numbers.busy == 0


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
