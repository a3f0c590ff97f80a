"""Schema 0021 lets PostgreSQL clean up the large tables more often."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from support.factories import letter
from support.stores.earlier_schema import run_script
from support.stores.filter_columns import remove_shared

from celery_dlq.store.base import Filter
from celery_dlq.store.database import schema, tables

LARGE = (
    tables.letter, tables.content, tables.attempt, tables.term, tables.sending, tables.delivery,
)  # fmt: skip
OPTIONS = {
    "autovacuum_vacuum_scale_factor=0.01",
    "autovacuum_vacuum_insert_scale_factor=0.01",
    "autovacuum_analyze_scale_factor=0.01",
}


@pytest.fixture
def before(bare):
    schema.upgrade(bare.database)
    bare.letters.save([letter("a")])
    remove_shared(bare)
    bare.database.write(
        lambda one: one.execute(text(f"UPDATE {tables.VERSION_TABLE} SET version_num = '0020'"))
    )
    if bare.database.dialect.name == "postgresql":
        names = ", ".join(option.partition("=")[0] for option in sorted(OPTIONS))
        for table in LARGE:
            reset = text(f"ALTER TABLE {table.name} RESET ({names})")
            bare.database.write(lambda one, reset=reset: one.execute(reset))
    return bare


def options_of(store, table):
    asked = text("SELECT reloptions FROM pg_class WHERE oid = CAST(:name AS regclass)")
    return store.database.read(lambda one: one.execute(asked, {"name": table.name}).scalar_one())


def check(store):
    assert store.counts.letters(Filter()) == 1
    if store.database.dialect.name == "postgresql":
        assert {table.name: set(options_of(store, table) or ()) for table in LARGE} == {
            table.name: OPTIONS for table in LARGE
        }


def test_the_upgrade_sets_them(before):
    assert schema.upgrade(before.database) == "0020"
    check(before)


def test_the_printed_upgrade_sets_them(before):
    run_script(before.database, schema.upgrade_sql(before.database, "0020"))
    check(before)


def test_a_new_store_has_them(store):
    store.letters.save([letter("a")])
    check(store)
