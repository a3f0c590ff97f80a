"""Schema 0017 gives deliveries a mark of their end. Those that are there have not ended."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from support.factories import T0, delivery, letter
from support.stores import filter_columns
from support.stores.earlier_schema import run_script

from celery_dlq.store.database import schema, tables


@pytest.fixture
def before(bare):
    """The schema of 0016, with three deliveries."""
    schema.upgrade(bare.database)
    for number in (1, 2, 3):
        bare.deliveries.put(delivery(f"id-{number}", minutes=1))
    statements = (
        f"ALTER TABLE {tables.delivery.name} DROP COLUMN ended",
        # Columns of a later version.
        f"ALTER TABLE {tables.sending.name} DROP COLUMN sent_again",
        f"ALTER TABLE {tables.sending.name} DROP COLUMN sent_again_at",
        f"ALTER TABLE {tables.operation.name} DROP COLUMN sent_again",
        f"UPDATE {tables.VERSION_TABLE} SET version_num = '0016'",
    )
    for statement in statements:
        bare.database.write(lambda one, said=statement: one.execute(text(said)))
    filter_columns.remove(bare)
    return bare


def check(store):
    store.check_schema()
    found = [store.deliveries.find(f"id-{number}", "shop.charge") for number in (1, 2, 3)]
    assert [len(one) for one in found] == [1, 1, 1]
    store.letters.save([letter("id-1")])
    assert store.deliveries.find("id-1", "shop.charge") == ()
    assert store.deliveries.came_again("id-1", "shop.charge", (0, 1), T0)
    assert store.deliveries.find("id-2", "shop.charge") == found[1]


def test_deliveries_that_are_there_have_not_ended(before):
    assert schema.upgrade(before.database) == "0016"
    check(before)


def test_the_printed_upgrade_marks_them_the_same_way(before):
    run_script(before.database, schema.upgrade_sql(before.database, "0016"))
    check(before)


def test_an_upgrade_that_was_cut_off_after_its_step_is_finished_by_the_next(before):
    schema.upgrade(before.database)
    back = text(f"UPDATE {tables.VERSION_TABLE} SET version_num = '0016'")
    before.database.write(lambda one: one.execute(back))
    assert schema.upgrade(before.database) == "0016"
    check(before)
