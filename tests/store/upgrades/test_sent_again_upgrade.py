"""Schema 0018 counts how often messages of redrives were sent again; of those that are there, none was."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from support.factories import T0, letter, operation
from support.stores import filter_columns, redriving
from support.stores.earlier_schema import run_script

from celery_dlq.store.base import Filter
from celery_dlq.store.database import schema, tables

#: The columns, each with its table, in the order of the upgrade.
COLUMNS = (
    (tables.sending, "sent_again"), (tables.sending, "sent_again_at"), (tables.operation, "sent_again"),
)  # fmt: skip


def run(store, statement: str) -> None:
    store.database.write(lambda one: one.execute(text(statement)))


@pytest.fixture
def before(bare):
    """The schema of 0017, with a redrive."""
    schema.upgrade(bare.database)
    bare.letters.save([letter("a")])
    bare.operations.create(operation("t"))
    redriving.claim(bare, Filter(), token="t", lease_until=T0, limit=1, now=T0)
    filter_columns.remove(bare)
    go_back(bare)
    return bare


def go_back(store, columns=COLUMNS) -> None:
    for table, column in columns:
        run(store, f"ALTER TABLE {table.name} DROP COLUMN {column}")
    run(store, f"UPDATE {tables.VERSION_TABLE} SET version_num = '0017'")


def check(store) -> None:
    store.check_schema()
    (found,) = store.sendings.of_letter("a")
    assert (found.sent_again, found.sent_again_at) == (0, None)
    assert store.operations.get("t").sent_again == 0


def test_redrives_that_are_there_were_not_sent_again(before):
    assert schema.upgrade(before.database) == "0017"
    check(before)


def test_the_printed_upgrade_does_the_same(before):
    run_script(before.database, schema.upgrade_sql(before.database, "0017"))
    check(before)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_an_upgrade_that_was_cut_off_is_finished_by_the_next(before, steps):
    schema.upgrade(before.database)
    go_back(before, COLUMNS[steps:])
    assert schema.upgrade(before.database) == "0017"
    check(before)
