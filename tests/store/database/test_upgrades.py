"""Upgrades of databases that have no schema yet, or one that cannot be upgraded."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from pymysql.err import OperationalError as MySQLError
from sqlalchemy import create_engine, event, inspect, text, update
from sqlalchemy.exc import OperationalError
from support.factories import T0, letter
from support.servers.databases import drop_all
from support.stores.schema_differences import differences

from celery_dlq.errors import SchemaError, StoreUnavailable
from celery_dlq.store.base import Filter
from celery_dlq.store.database import schema, tables
from celery_dlq.store.database.engine import Database
from celery_dlq.store.sql import SQLStore

pytestmark = pytest.mark.on_servers

UPGRADE = r"run: celery -A <app> dlq db upgrade"

#: An upgrade is interrupted after this many steps: the gate's cuts fall after tables and after indexes.
EVERY = 1 if os.environ.get("CELERY_DLQ_TEST_ALL") else 5


def names(store: SQLStore) -> set[str]:
    return store.database.read(lambda connection: set(inspect(connection).get_table_names()))


def run_script(database: Database, script: str) -> None:
    """Run the SQL that ``db sql`` prints in one transaction."""

    def run(connection):
        for statement in re.sub(r"(?m)^--.*$", "", script).split(";"):
            if statement.strip() not in ("", "BEGIN", "COMMIT"):
                connection.exec_driver_sql(statement)

    database.write(run)


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


@pytest.fixture
def on_mysql(own_mysql_url):
    """An empty MySQL database, where an upgrade that is interrupted leaves traces."""
    store = SQLStore(own_mysql_url)
    yield store
    drop_all(store.database)
    store.close()


def test_a_missing_schema_names_the_upgrade(bare):
    if bare.database.dialect.name == "sqlite":
        pytest.skip("SQLite's schema is made on first use")
    for use in (
        bare.check_schema,
        lambda: bare.letters.save([letter()]),
        lambda: bare.counts.letters(Filter()),
    ):
        with pytest.raises(SchemaError, match=f"no schema yet; {UPGRADE}"):
            use()


def test_upgrades_at_once_wait_for_each_other(bare):
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: schema.upgrade(bare.database), range(3)))
    assert sorted(found, key=str) == sorted([None, schema.HEAD, schema.HEAD], key=str)


def test_a_schema_that_was_never_released_is_left_as_it_is(bare):
    def begin(connection):
        tables.version.create(connection)
        connection.execute(tables.version.insert().values(version_num="0001"))
        connection.execute(text("CREATE TABLE celery_dead_letter (id INTEGER)"))

    bare.database.write(begin)
    found = names(bare)
    uses = (
        bare.check_schema,
        lambda: bare.letters.save([letter()]),
        lambda: schema.upgrade(bare.database),
    )
    for version, use in itertools.product(("0001", "0012", "0024"), uses):
        change = update(tables.version).values(version_num=version)
        bare.database.write(lambda connection, change=change: connection.execute(change))
        with pytest.raises(
            SchemaError, match=rf"at {version}, which an unreleased state.*to a new database; see"
        ) as caught:
            use()
        assert UPGRADE not in str(caught.value)
        assert names(bare) == found
        assert bare.database.read(schema.current) == version


def test_a_table_that_vanished_names_the_upgrade(bare):
    def begin(connection):
        tables.version.create(connection)
        connection.execute(tables.version.insert().values(version_num=schema.HEAD))

    bare.database.write(begin)
    bare.check_schema()
    drop_all(bare.database)
    with pytest.raises(SchemaError, match=f"does not fit.*{UPGRADE}") as caught:
        bare.letters.get("0d3f")
    assert "SELECT" not in str(caught.value)


def test_an_upgrade_makes_the_schema_once_and_touches_nothing_of_a_host_application(bare):
    def host(connection):
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('host')"))
        connection.execute(text("CREATE TABLE shop_order (id INTEGER)"))

    bare.database.write(host)
    assert schema.upgrade(bare.database) is None
    assert schema.upgrade(bare.database) == schema.HEAD
    bare.check_schema()
    assert bare.letters.save([letter()]).arrived == 1
    version = bare.database.read(
        lambda connection: connection.scalar(text("SELECT version_num FROM alembic_version"))
    )
    assert version == "host"
    ours = {table.name for table in tables.metadata.tables.values()} | {tables.VERSION_TABLE}
    assert names(bare) == ours | {"alembic_version", "shop_order"}


def test_the_printed_sql_makes_the_same_schema(bare):
    script = schema.upgrade_sql(bare.database)
    run_script(bare.database, script)
    bare.check_schema()
    assert bare.database.read(differences) == []
    assert bare.letters.save([letter()]).arrived == 1


def test_a_first_start_says_in_one_line_that_the_schema_was_created(tmp_path):
    """In a new process: Alembic logs some of its lines when it is imported."""
    code = (
        "import logging, sys; logging.basicConfig(level=logging.DEBUG, format='%(name)s %(message)s')\n"
        "from celery_dlq.store.sql import SQLStore\n"
        "SQLStore('sqlite:///letters.sqlite3').check_schema()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines() == [
        f"celery_dlq.store.database.schema created the schema {schema.HEAD} of the dead-letter store "
        "letters.sqlite3"
    ]


def test_sqlite_makes_its_schema_on_first_use(sqlite_store):
    assert sqlite_store.letters.get("0d3f") is None
    assert tables.VERSION_TABLE in names(sqlite_store)


def test_many_first_users_of_a_file_make_its_schema_once(tmp_path):
    url = f"sqlite:///{tmp_path / 'dlq.sqlite3'}"
    stores = [SQLStore(url, timeout=30) for _ in range(6)]
    with ThreadPoolExecutor(len(stores)) as pool:
        saved = list(pool.map(lambda store: store.letters.save([letter()]).arrived, stores))
    assert sum(saved) == 1
    for store in stores:
        store.close()


def test_a_database_that_cannot_hold_every_letter_is_refused(postgres_url):
    name = f"latin_{uuid.uuid4().hex[:12]}"
    server = create_engine(postgres_url, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        options = "ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        connection.execute(text(f"CREATE DATABASE {name} {options}"))
        latin = Database(f"{postgres_url.rpartition('/')[0]}/{name}")
        with pytest.raises(SchemaError, match=r"encoded in LATIN1.*ENCODING 'UTF8'"):
            schema.upgrade(latin)
        connection.execute(text(f"DROP DATABASE {name}"))
    server.dispose()


def test_an_upgrade_that_is_interrupted_after_any_step_is_finished_by_the_next(on_mysql, watched):
    """Each upgrade makes some tables or indexes more, and then loses its connection."""

    def cut_off(connection, cursor, statement, *rest):
        if statement.strip().startswith("CREATE "):
            made.append(statement)
            if len(made) % EVERY == 0:
                killed = connection.connection.driver_connection.thread_id()
                on_mysql.database.write(lambda other: other.execute(text(f"KILL {killed}")))

    every = tables.metadata.tables.values()
    # And Alembic's own table.
    steps = 1 + sum(1 + len(table.indexes) for table in every)
    made: list[str] = []
    watched("after_cursor_execute", cut_off)
    for _ in range(steps // EVERY):
        with pytest.raises(StoreUnavailable):
            schema.upgrade(on_mysql.database)
    assert schema.upgrade(on_mysql.database) is None
    assert len(made) == len(set(made)) == steps
    on_mysql.check_schema()
    assert on_mysql.database.read(differences) == []


def test_an_upgrade_that_fails_leaves_nothing_where_tables_can_be_undone(bare, watched):
    if not bare.database.dialect.undoes_ddl:
        pytest.skip("it commits each change of a table at once")

    def fail(connection, cursor, statement, *rest):
        if statement.strip().startswith(f"CREATE TABLE {tables.report.name}"):
            raise ZeroDivisionError

    watched("before_cursor_execute", fail)
    with pytest.raises(ZeroDivisionError):
        schema.upgrade(bare.database)
    assert names(bare) == set()
    watched("before_cursor_execute", lambda *rest: None)
    assert schema.upgrade(bare.database) is None


def test_an_upgrade_that_meets_a_deadlock_begins_again(on_mysql, watched):
    seen = []

    def deadlock(connection, cursor, statement, *rest):
        if statement.startswith("CREATE INDEX") and not seen:
            seen.append(statement)
            raise OperationalError(statement, {}, MySQLError(1213, "as the test wants"))

    watched("before_cursor_execute", deadlock)
    assert schema.upgrade(on_mysql.database) is None
    assert on_mysql.database.read(differences) == []


def test_stats_of_a_new_store_need_no_rows(sqlite_store):
    assert sqlite_store.monitoring.stats(T0).depth == 0
