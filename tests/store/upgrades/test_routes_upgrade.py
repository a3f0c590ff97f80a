"""Schema 0013 gives letters a route: those that are there already have none, and are counted as before.
Schema 0014 adds two columns to redrives, 0015 and 0016 a table each, 0017 a column to deliveries, 0018 two
more to redrives, and 0019 an index of letters and columns of parked retries."""

from __future__ import annotations

import pytest
from pymysql.err import OperationalError as MySQLError
from sqlalchemy import event, inspect, text
from support.factories import T0, attempt, letter, parking
from support.servers.databases import drop_all
from support.stores import filter_columns
from support.stores.earlier_schema import run_script
from support.stores.rollup_checks import assert_counts_hold

from celery_dlq.errors import StoreError
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.store.database import schema, tables
from celery_dlq.store.database.engine import Database
from celery_dlq.store.sql import SQLStore

TABLES = (tables.letter, tables.group, tables.count, tables.parked)

#: The statements of the upgrade, in this order.
STEPS = (
    *(f"ALTER TABLE {table.name} ADD" for table in TABLES), "CREATE INDEX",
    f"ALTER TABLE {tables.sending.name} ADD COLUMN failed_at",
    f"ALTER TABLE {tables.sending.name} ADD COLUMN cause",
    f"CREATE TABLE {tables.segment.name}",
    f"CREATE TABLE {tables.report.name}",
    f"ALTER TABLE {tables.delivery.name} ADD COLUMN ended",
    f"ALTER TABLE {tables.sending.name} ADD COLUMN sent_again",
    f"ALTER TABLE {tables.sending.name} ADD COLUMN sent_again_at",
    f"ALTER TABLE {tables.operation.name} ADD COLUMN sent_again",
    f"CREATE INDEX {filter_columns.INDEX}",
    f"ALTER TABLE {tables.parked.name} ADD COLUMN `release`",
    f"ALTER TABLE {tables.parked.name} ADD COLUMN rule",
    f"UPDATE {tables.parked.name}",
    "UPDATE ",
)  # fmt: skip


def go_back(store) -> None:
    """Make the schema that of 0012, with two letters and a parked retry that a release without routes has
    stored."""
    schema.upgrade(store.database)
    store.letters.save([letter("a", attempt(minutes=1)), letter("b", attempt(minutes=2))])
    store.parked.park([parking("p", 60)], now=T0)
    index = f"ix_{tables.letter.name}_route"
    on = f" ON {tables.letter.name}" if store.database.dialect.name == "mysql" else ""
    statements = [f"DROP INDEX {index}{on}"]
    statements += [f"ALTER TABLE {table.name} DROP COLUMN route" for table in TABLES]
    # What later versions have added.
    statements += [
        f"ALTER TABLE {tables.sending.name} DROP COLUMN {column}"
        for column in ("failed_at", "cause", "sent_again", "sent_again_at")
    ]
    statements.append(f"ALTER TABLE {tables.operation.name} DROP COLUMN sent_again")
    filter_columns.remove(store)
    statements += [f"DROP TABLE {table.name}" for table in (tables.segment, tables.report)]
    statements.append(f"ALTER TABLE {tables.delivery.name} DROP COLUMN ended")
    statements.append(f"UPDATE {tables.VERSION_TABLE} SET version_num = '0012'")
    for statement in statements:
        store.database.write(lambda one, said=statement: one.execute(text(said)))


@pytest.fixture
def before(bare):
    go_back(bare)
    return bare


@pytest.fixture
def before_on_mysql(own_mysql_url):
    store = SQLStore(own_mysql_url)
    go_back(store)
    yield store
    drop_all(store.database)
    store.close()


def check_letters(store) -> None:
    """The letters are as they were; a new one is on its route, and an old one that fails again, too."""
    store.check_schema()
    assert [item.route for item in store.letters.find(Filter()).letters] == ["", ""]
    assert store.letters.get("p").route == ""
    assert store.monitoring.measures().routes == {}
    assert store.groups.get("9c1e0000deadbeef", now=T0).route == ""
    store.letters.save(
        [
            letter("c", attempt(minutes=3), route="payments"),
            letter("a", attempt(minutes=1), attempt(2, minutes=4), route="payments"),
        ]
    )
    assert store.monitoring.measures().routes == {"payments": 2}
    for state in (State.DEAD, State.PARKED):
        wanted = Filter(ids=("b", "p"), states=frozenset({state}))
        store.closing.discard(wanted, who="ann", why="", now=T0)
    assert store.counts.letters(Filter(route="payments")) == 2
    assert store.counts.letters(Filter()) == 2
    assert_counts_hold(store)


def test_old_letters_have_no_route_and_stay_counted(before):
    assert schema.upgrade(before.database) == "0012"
    check_letters(before)


def test_the_printed_upgrade_does_the_same(before):
    run_script(before.database, schema.upgrade_sql(before.database, "0012"))
    check_letters(before)


def test_the_schema_is_that_of_a_new_store(before):
    schema.upgrade(before.database)
    found = before.database.read(
        lambda one: {
            item["name"]: item["column_names"]
            for item in inspect(one).get_indexes(tables.letter.name)
        }
    )
    assert found["ix_celery_dead_letter_route"] == ["route", "state", "last_failed_at", "id"]


@pytest.mark.parametrize("step", STEPS)
def test_an_upgrade_that_is_cut_off_is_finished_by_the_next(before_on_mysql, monkeypatch, step):
    def cut_off(connection, cursor, statement, *rest):
        if statement.strip().startswith(step):
            raise MySQLError(2013, "Lost connection")

    def opened(*args, **options):
        database = Database(*args, **options)
        event.listen(database.engine, "before_cursor_execute", cut_off)
        return database

    with monkeypatch.context() as patched:
        patched.setattr(schema, "Database", opened)
        with pytest.raises((StoreError, MySQLError)):
            schema.upgrade(before_on_mysql.database)
    reached = before_on_mysql.database.read(schema.current)
    assert reached in ("0012", "0013", "0014", "0015", "0016", "0017", "0018")
    assert schema.upgrade(before_on_mysql.database) == reached
    check_letters(before_on_mysql)


def test_a_letter_that_an_older_release_spooled_has_no_route():
    told = letter(state=State.DEAD).to_dict()
    del told["route"]
    assert type(letter()).from_dict({**told, "format": 3}).route == ""
