"""Schema 0010 gives contents a table of their own: no letter may lose them on the way."""

from __future__ import annotations

import json
import time

import pytest
from alembic import command
from pymysql.err import OperationalError as MySQLError
from sqlalchemy import event, inspect, select, text
from sqlalchemy.exc import OperationalError
from support.servers.databases import drop_all
from support.stores.earlier_schema import OldWorker, insert_letters, row_of, run_script

from celery_dlq.errors import StoreError, StoreUnavailable
from celery_dlq.store.database import schema, tables
from celery_dlq.store.database.engine import Database
from celery_dlq.store.sql import SQLStore

LETTER = tables.letter.name

#: The statements for MySQL, in this order.
STEPS = (
    "CREATE TABLE celery_dead_letter_content",
    "LOCK TABLES",
    "REPLACE INTO celery_dead_letter_content",
    "ALTER TABLE celery_dead_letter ",
    "UNLOCK TABLES",
    "UPDATE celery_dlq_version",
)


@pytest.fixture
def before(bare):
    """A store with schema 0009 and two letters."""
    bare.database.write(begin)
    return bare


@pytest.fixture
def before_on_mysql(own_mysql_url):
    """The same on MySQL, where an upgrade that is interrupted leaves traces."""
    store = SQLStore(own_mysql_url)
    store.database.write(begin)
    yield store
    drop_all(store.database)
    store.close()


def begin(connection) -> None:
    command.upgrade(schema._config(connection=connection), "0009")
    insert_letters(connection, [row_of("a"), row_of("b")])


@pytest.fixture
def watched(monkeypatch):
    """Lets a function be called at an event of the upgrade's database engine."""

    def watch(moment, called):
        def opened(*args, **options):
            database = Database(*args, **options)
            event.listen(database.engine, moment, called)
            return database

        monkeypatch.setattr(schema, "Database", opened)

    return watch


def stored(store) -> dict[str, str]:
    """The first argument of each letter that has contents."""
    letter, content = tables.letter, tables.content
    wanted = select(letter.c.task_id, content.c.args).join(content, content.c.id == letter.c.id)
    rows = store.database.read(lambda connection: connection.execute(wanted).all())
    return {row.task_id: json.loads(row.args)[0] for row in rows}


def test_letters_that_old_workers_save_during_the_upgrade_keep_their_contents(before, watched):
    if before.database.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    worker = OldWorker(before.database)

    def hold_after_copy(connection, cursor, statement, *rest):
        if "INTO celery_dead_letter_content" not in statement:
            return
        # The first of two may have been committed before the copy began.
        enough = len(worker.saved) + 2
        while worker.is_alive() and not (worker.waits() or len(worker.saved) >= enough):
            time.sleep(0.01)

    watched("after_cursor_execute", hold_after_copy)
    worker.start()
    assert worker.is_at_work.wait(timeout=30)
    schema.upgrade(before.database)
    worker.join()
    assert "headers" in worker.refusal
    assert stored(before) == {name: name for name in ("a", "b", *worker.saved)}


@pytest.mark.parametrize("step", STEPS)
def test_an_upgrade_that_is_cut_off_is_finished_by_the_next(before_on_mysql, watched, step):
    def cut_off(connection, cursor, statement, *rest):
        if statement.strip().startswith(step):
            killed = connection.connection.driver_connection.thread_id()
            before_on_mysql.database.write(lambda other: other.execute(text(f"KILL {killed}")))

    watched("before_cursor_execute", cut_off)
    with pytest.raises(StoreUnavailable):
        schema.upgrade(before_on_mysql.database)
    expected = {"a": "a", "b": "b", **save_as_before(before_on_mysql)}
    watched("before_cursor_execute", lambda *rest: None)
    assert schema.upgrade(before_on_mysql.database) == "0009"
    before_on_mysql.check_schema()
    assert stored(before_on_mysql) == expected


def save_as_before(store) -> dict[str, str]:
    """A letter that changes and one that arrives, while there is still a place for their contents."""

    def save(connection):
        if "args" not in {column["name"] for column in inspect(connection).get_columns(LETTER)}:
            return {}
        connection.execute(text(f"UPDATE {LETTER} SET args = '[\"newer\"]' WHERE task_id = 'a'"))
        insert_letters(connection, [row_of("c")])
        return {"a": "newer", "c": "c"}

    return store.database.write(save)


def failing(number: int, times: int):
    """Makes the drop of the columns fail this many times, after the copy."""
    seen = []

    def fail(connection, cursor, statement, *rest):
        if statement.startswith(f"ALTER TABLE {LETTER} ") and len(seen) < times:
            seen.append(statement)
            raise OperationalError(statement, {}, MySQLError(number, "as the test wants"))

    return fail


def test_an_upgrade_that_meets_a_deadlock_locks_no_table_when_it_begins_again(
    before_on_mysql, watched
):
    deadlock = 1213
    watched("before_cursor_execute", failing(deadlock, times=1))
    assert schema.upgrade(before_on_mysql.database) == "0009"
    assert stored(before_on_mysql) == {"a": "a", "b": "b"}


def test_contents_saved_after_a_failed_upgrade_replace_those_that_it_copied(
    before_on_mysql, watched
):
    disk_full = 1021
    watched("before_cursor_execute", failing(disk_full, times=1))
    with pytest.raises(StoreError, match="as the test wants"):
        schema.upgrade(before_on_mysql.database)
    assert stored(before_on_mysql) == {"a": "a", "b": "b"}
    saved = save_as_before(before_on_mysql)
    assert schema.upgrade(before_on_mysql.database) == "0009"
    assert stored(before_on_mysql) == {"b": "b", **saved} == {"a": "newer", "b": "b", "c": "c"}


def test_the_printed_sql_moves_the_contents(before):
    script = schema.upgrade_sql(before.database, since="0009")
    run_script(before.database, script)
    before.check_schema()
    assert stored(before) == {"a": "a", "b": "b"}


@pytest.mark.parametrize(
    ("url", "steps"),
    [
        ("sqlite:///none.sqlite3", ["BEGIN;", "INSERT INTO", "DROP TABLE", "COMMIT;"]),
        ("postgresql://nowhere.invalid/none",
         ["BEGIN;", "LOCK TABLE", "INSERT INTO", "ALTER TABLE", "COMMIT;"]),
        ("mysql://nowhere.invalid/none", STEPS),
    ],
)  # fmt: skip
def test_the_printed_sql_lets_no_one_write_between_copy_and_drop(url, steps):
    script = schema.upgrade_sql(Database(url), since="0009")
    found = [script.index(step) for step in steps]
    assert found == sorted(found)
