"""Schema 0020 has the values of letters. Those of earlier letters come in the background."""

from __future__ import annotations

import pytest
from sqlalchemy import inspect, text
from support.factories import letter
from support.stores import filter_columns
from support.stores.earlier_schema import run_script

from celery_dlq.store.base import Filter
from celery_dlq.store.database import schema, tables

INDEX = f"ix_{tables.term.name}_value"


def run(store, statement: str) -> None:
    store.database.write(lambda one: one.execute(text(statement)))


@pytest.fixture
def before(bare):
    """The schema of 0019, with a letter that a release without values has stored."""
    schema.upgrade(bare.database)
    bare.letters.save([letter("a", args=[4711])])
    run(bare, f"DROP TABLE {tables.term.name}")
    filter_columns.remove_shared(bare)
    run(bare, f"UPDATE {tables.VERSION_TABLE} SET version_num = '0019'")
    return bare


def check(store) -> None:
    """The table is as it should be, and gets the values of the letter."""
    while store.values.add(letters=10):
        pass
    page = store.letters.find(Filter(values=("4711",)))
    assert [one.task_id for one in page.letters] == ["a"]
    # Only now: a connection to SQLite notices a new index with the next statement on the table.
    indexes = store.database.read(lambda one: inspect(one).get_indexes(tables.term.name))
    columns = {item["name"]: item["column_names"] for item in indexes}
    assert columns[INDEX] == ["value", "path", "letter"]


def test_the_table_is_made(before):
    assert schema.upgrade(before.database) == "0019"
    check(before)


def test_the_printed_upgrade_does_the_same(before):
    run_script(before.database, schema.upgrade_sql(before.database, "0019"))
    check(before)


def test_an_upgrade_that_was_cut_off_is_finished_by_the_next(before):
    schema.upgrade(before.database)
    on = f" ON {tables.term.name}" if before.database.dialect.name == "mysql" else ""
    run(before, f"DROP INDEX {INDEX}{on}")
    run(before, f"UPDATE {tables.VERSION_TABLE} SET version_num = '0019'")
    assert schema.upgrade(before.database) == "0019"
    check(before)
