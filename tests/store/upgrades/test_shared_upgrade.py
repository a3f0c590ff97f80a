"""Schema 0022 lets several processes carry an operation; the earlier ones go on with one."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from support.factories import T0, letter, operation
from support.stores.earlier_schema import run_script
from support.stores.filter_columns import SHARED, remove_saved_filters

from celery_dlq.model.operation import Counts, OperationState
from celery_dlq.store.database import schema, tables


def run(store, statement: str) -> None:
    store.database.write(lambda one: one.execute(text(statement)))


@pytest.fixture
def before(bare):
    """The schema of 0021, with an operation that holds a letter."""
    schema.upgrade(bare.database)
    bare.letters.save([letter("a")])
    bare.operations.create(operation("one", state=OperationState.RUNNING))
    bare.claims.take(operation("one"), token="t", lease_until=T0, limit=1, now=T0)
    go_back(bare)
    return bare


def go_back(store, columns=SHARED) -> None:
    remove_saved_filters(store)
    for table, column in columns:
        run(store, f"ALTER TABLE {table.name} DROP COLUMN {column}")
    run(store, f"UPDATE {tables.VERSION_TABLE} SET version_num = '0021'")


def check(store) -> None:
    store.check_schema()
    found = store.operations.get("one")
    assert (found.allotted, found.counts) == (0, Counts(planned=3, sending=1))
    assert store.claims.free("one") == 1


def test_an_operation_that_is_there_has_one_process(before):
    assert schema.upgrade(before.database) == "0021"
    check(before)


def test_the_printed_upgrade_does_the_same(before):
    run_script(before.database, schema.upgrade_sql(before.database, "0021"))
    check(before)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_an_upgrade_that_was_cut_off_is_finished_by_the_next(before, steps):
    schema.upgrade(before.database)
    go_back(before, SHARED[steps:])
    assert schema.upgrade(before.database) == "0021"
    check(before)
