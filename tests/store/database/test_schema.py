from __future__ import annotations

import math
import re
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import bindparam, create_engine, insert, inspect, select, text, update
from support.factories import T0, attempt, letter
from support.servers.databases import drop_all
from support.stores.earlier_schema import insert_letters, run_script

from celery_dlq.errors import SchemaError
from celery_dlq.store.base import Filter
from celery_dlq.store.database import schema, tables
from celery_dlq.store.database.dialects.supported import SUPPORTED
from celery_dlq.store.database.engine import Database
from celery_dlq.store.rows.rows import attempt_row, letter_row
from celery_dlq.store.sql import SQLStore

UPGRADE = r"run: celery -A <app> dlq db upgrade"


def set_version(store: SQLStore, version: str) -> None:
    change = update(tables.version).values(version_num=version)
    store.database.write(lambda connection: connection.execute(change))


def names(store: SQLStore) -> set[str]:
    return store.database.read(lambda connection: set(inspect(connection).get_table_names()))


def test_the_migrations_make_what_the_code_expects(store):
    def differences(connection):
        options = {"compare_type": True, "version_table": tables.VERSION_TABLE}
        context = MigrationContext.configure(connection, opts=options)
        return compare_metadata(context, tables.metadata)

    assert store.database.read(differences) == []


def test_indexes_have_the_same_names_as_in_the_code(store):
    found = store.database.read(
        lambda connection: inspect(connection).get_indexes("celery_dead_letter")
    )
    expected = {index.name for index in tables.letter.indexes}
    assert expected <= {index["name"] for index in found}
    assert len(expected) == 7


def test_the_head_that_workers_compare_with_is_the_newest_migration():
    scripts = ScriptDirectory.from_config(schema._config())
    assert scripts.get_heads() == [schema.HEAD]


def test_migrations_are_numbered_in_one_line():
    scripts = ScriptDirectory.from_config(schema._config())
    revisions = [script.revision for script in scripts.walk_revisions()]
    assert revisions == sorted(revisions, reverse=True)
    for script in scripts.walk_revisions():
        assert re.fullmatch(r"\d{4}", script.revision)
        assert script.path.rpartition("/")[2].startswith(f"{script.revision}_")


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


def test_an_upgrade_makes_the_schema_once(bare):
    assert schema.upgrade(bare.database) is None
    assert schema.upgrade(bare.database) == schema.HEAD
    bare.check_schema()
    assert bare.letters.save([letter()]).arrived == 1


def test_upgrades_at_once_wait_for_each_other(bare):
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: schema.upgrade(bare.database), range(3)))
    assert sorted(found, key=str) == sorted([None, schema.HEAD, schema.HEAD], key=str)


def test_an_older_schema_names_the_upgrade(bare):
    schema.upgrade(bare.database)
    set_version(bare, "0000")
    with pytest.raises(
        SchemaError, match=rf"at 0000 and this release needs {schema.HEAD}; {UPGRADE}"
    ):
        bare.letters.save([letter()])
    set_version(bare, schema.HEAD)
    assert bare.letters.save([letter()]).arrived == 1


def test_a_newer_schema_asks_for_a_newer_release(bare):
    schema.upgrade(bare.database)
    set_version(bare, "9999")
    with pytest.raises(SchemaError, match=r"at 9999, newer than.*pip install --upgrade celery-dlq"):
        bare.check_schema()


def test_a_newer_schema_is_not_touched_by_an_upgrade(bare):
    schema.upgrade(bare.database)
    set_version(bare, "9999")
    with pytest.raises(SchemaError, match="newer than"):
        schema.upgrade(bare.database)
    assert bare.database.read(schema.current) == "9999"


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


def test_a_table_that_vanished_names_the_upgrade(bare):
    schema.upgrade(bare.database)
    bare.check_schema()
    drop_all(bare.database)
    with pytest.raises(SchemaError, match=f"does not fit.*{UPGRADE}") as caught:
        bare.letters.get("0d3f")
    assert "SELECT" not in str(caught.value)


def test_a_host_applications_own_migrations_are_not_touched(bare):
    def host(connection):
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('host')"))
        connection.execute(text("CREATE TABLE shop_order (id INTEGER)"))

    bare.database.write(host)
    schema.upgrade(bare.database)
    bare.letters.save([letter()])
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
    assert bare.letters.save([letter()]).arrived == 1


def test_there_is_no_sql_to_print_from_the_head(bare):
    assert "CREATE TABLE" not in schema.upgrade_sql(bare.database, since=schema.HEAD)


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


def test_sql_is_printed_without_connecting():
    script = schema.upgrade_sql(Database("postgresql://nobody:hunter2@nowhere.invalid/none"))
    assert 'VARCHAR(255) COLLATE "C"' in script
    assert "hunter2" not in script
    assert "LONGBLOB" in schema.upgrade_sql(Database("mysql://nobody@nowhere.invalid/none"))


@pytest.mark.parametrize("dialect", SUPPORTED, ids=lambda dialect: dialect.name)
def test_the_whole_schema_can_be_printed_for_each_database(dialect):
    script = schema.upgrade_sql(Database(f"{dialect.name}://nobody@nowhere.invalid/none"))
    assert f"'{schema.HEAD}'" in script
    for table in tables.metadata.sorted_tables:
        assert f"CREATE TABLE {table.name} (" in script


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


def test_stats_of_a_new_store_need_no_rows(sqlite_store):
    assert sqlite_store.monitoring.stats(T0).depth == 0


def test_attempts_that_are_there_already_get_no_evidence(bare):
    def begin(connection):
        command.upgrade(schema._config(connection=connection), "0002")
        # As an earlier release wrote it: without the columns that come later.
        old = [column for column in tables.attempt.columns if not column.server_default]
        row = {**attempt_row("0d3f", attempt()), "message": "old"}
        values = {column.name: row[column.name] for column in old}
        names = ", ".join(values)
        places = ", ".join(f":{name}" for name in values)
        types = [bindparam(column.name, type_=column.type) for column in old]
        table = tables.attempt.name
        insertion = text(f"INSERT INTO {table} ({names}) VALUES ({places})")
        connection.execute(insertion.bindparams(*types), values)

    bare.database.write(begin)
    assert schema.upgrade(bare.database) == "0002"
    [row] = bare.database.read(lambda connection: connection.execute(select(tables.attempt)).all())
    assert (row.message, row.evidence, row.path) == ("old", "", "")


def test_letters_that_are_there_already_are_in_the_trends(bare):
    def begin(connection):
        command.upgrade(schema._config(connection=connection), "0006")
        at = {"a": 0, "b": 59, "c": 60, "d": 61}
        rows = [letter_row(letter(name, attempt(minutes=number))) for name, number in at.items()]
        values = {"redrive_count": 0, "last_redrive": 0, "attempt_count": 1}
        rows = [{**row, **values, "state": "dead"} for row in rows]
        insert_letters(connection, [*rows[:3], {**rows[3], "state": "resolved"}])

    bare.database.write(begin)
    assert schema.upgrade(bare.database) == "0006"
    fingerprint = letter().fingerprint
    now = T0 + timedelta(minutes=90)
    assert bare.groups.trends([fingerprint], now=now, hours=2) == {fingerprint: (2, 2)}
    assert bare.monitoring.stats(now).ages == {60: 0, 3_600: 2, 86_400: 1, 604_800: 0, math.inf: 0}


def test_acts_that_are_there_already_are_from_no_known_machine(bare):
    def begin(connection):
        command.upgrade(schema._config(connection=connection), "0004")
        act = {"at": T0, "who": "ann", "act": "discard", "count": 3, "why": "old", "detail": "{}"}
        names, places = ", ".join(act), ", ".join(f":{name}" for name in act)
        insertion = text(f"INSERT INTO {tables.audit.name} ({names}) VALUES ({places})")
        at = bindparam("at", type_=tables.audit.c.at.type)
        connection.execute(insertion.bindparams(at), act)

    bare.database.write(begin)
    assert schema.upgrade(bare.database) == "0004"
    [row] = bare.audit.find().rows
    assert (row.who, row.host, row.count) == ("ann", "", 3)
    assert bare.operations.find() == []


def test_letters_that_are_there_already_keep_their_contents(bare):
    whole = letter("0d3f", args=["x"], kwargs={"y": 1}, traceback="line 1")
    counts = {"redrive_count": 0, "last_redrive": 0, "attempt_count": 0}

    def begin(connection):
        command.upgrade(schema._config(connection=connection), "0009")
        other = letter("17aa", task="shop.ship")
        insert_letters(connection, [{**letter_row(one), **counts} for one in (whole, other)])

    bare.database.write(begin)
    assert schema.upgrade(bare.database) == "0009"
    assert bare.letters.get("0d3f") == whole.with_(attempts=(), attempt_count=0)
    assert bare.letters.get("17aa").task == "shop.ship"
    assert bare.letters.save([letter("0d3f", attempt(minutes=5)), letter("new")]).arrived == 1
    assert len(bare.letters.find(Filter()).letters) == 3


def test_letters_claimed_when_claims_become_rows_are_given_back(bare):
    bare.database.write(
        lambda connection: command.upgrade(schema._config(connection=connection), "0006")
    )

    def claim_as_before(connection):
        for task_id, was in (("a", "dead"), ("b", "redriven"), ("c", None)):
            row = letter_row(letter(task_id))
            row.update(state="claimed", claim_token="t", redrive_count=1, last_redrive=0)
            insert_letters(connection, [row])
            if was:
                connection.execute(insert(tables.sending).values(**sending_row(task_id, was)))

    bare.database.write(claim_as_before)
    assert schema.upgrade(bare.database) == "0006"
    found = {name: bare.letters.get(name) for name in "abc"}
    assert {name: one.state.value for name, one in found.items()} == {
        "a": "dead", "b": "redriven", "c": "dead",
    }  # fmt: skip
    assert {one.redrive_count for one in found.values()} == {1}
    assert bare.sendings.of_letter("a")[0].state.value == "sending"


def test_acts_that_are_there_already_are_found_by_what_they_were_about(bare):
    details = {
        "redrive": '{"operation":"0a1b2c3d4e5f","filter":{}}',
        "edit": '{"letter":"0d3f"}',
        "discard": '{"filter":{"ids":["0d3f"]}}',
    }

    def begin(connection):
        command.upgrade(schema._config(connection=connection), "0008")
        columns = [
            column for column in tables.audit.columns if column.name not in ("id", "subject")
        ]
        names = ", ".join(column.name for column in columns)
        places = ", ".join(f":{column.name}" for column in columns)
        types = [bindparam(column.name, type_=column.type) for column in columns]
        insertion = text(f"INSERT INTO {tables.audit.name} ({names}) VALUES ({places})")
        for act, detail in details.items():
            values = {"at": T0, "who": "ann", "host": "", "act": act, "count": 1, "why": ""}
            connection.execute(insertion.bindparams(*types), {**values, "detail": detail})

    bare.database.write(begin)
    schema.upgrade(bare.database)
    subjects = bare.database.read(
        lambda connection: connection.execute(select(tables.audit.c.subject)).scalars().all()
    )
    assert sorted(subjects) == ["", "0a1b2c3d4e5f", "0d3f"]
    assert [row.act for row in bare.audit.find(letter="0d3f").rows] == ["edit"]


def sending_row(task_id: str, was: str) -> dict[str, object]:
    return {
        "operation": "one", "task_id": task_id, "task": "shop.charge", "redrive": 2,
        "state": "sending", "was": was, "copy": "t", "copies": 1, "why": "", "fingerprint": "",
        "change": "", "claimed_at": T0,
    }  # fmt: skip
