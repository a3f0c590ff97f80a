"""The schema as the code expects it, and its version."""

from __future__ import annotations

import re

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text, update
from support.factories import letter
from support.stores.schema_differences import differences

from celery_dlq.errors import SchemaError
from celery_dlq.store.database import schema, tables
from celery_dlq.store.database.dialects import SUPPORTED
from celery_dlq.store.database.engine import Database
from celery_dlq.store.sql import SQLStore

pytestmark = pytest.mark.on_servers

UPGRADE = r"run: celery -A <app> dlq db upgrade"

LARGE = (
    tables.letter, tables.content, tables.attempt, tables.term, tables.sending, tables.delivery,
)  # fmt: skip
AUTOVACUUM = {
    "autovacuum_vacuum_scale_factor=0.01",
    "autovacuum_vacuum_insert_scale_factor=0.01",
    "autovacuum_analyze_scale_factor=0.01",
}


def set_version(store: SQLStore, version: str) -> None:
    change = update(tables.version).values(version_num=version)
    store.database.write(lambda connection: connection.execute(change))


@pytest.fixture
def unchecked(store, database_url):
    """A store that has not looked at its schema yet; the schema gets its own version back."""
    unchecked = SQLStore(database_url)
    yield unchecked
    set_version(unchecked, schema.HEAD)
    unchecked.close()


def test_the_migrations_make_what_the_code_expects(store):
    assert store.database.read(differences) == []


def test_postgresql_cleans_up_the_large_tables_more_often(store):
    if store.database.dialect.name != "postgresql":
        pytest.skip("only PostgreSQL has these settings")
    asked = text("SELECT relname, reloptions FROM pg_class WHERE reloptions IS NOT NULL")
    found = store.database.read(lambda connection: connection.execute(asked).all())
    ours = {name: set(options) for name, options in found if name.startswith("celery_")}
    assert ours == {table.name: AUTOVACUUM for table in LARGE}


def test_indexes_have_the_same_names_as_in_the_code(store):
    found = store.database.read(
        lambda connection: inspect(connection).get_indexes("celery_dead_letter")
    )
    expected = {index.name for index in tables.letter.indexes}
    assert expected <= {index["name"] for index in found}
    assert len(expected) == 8


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


def test_an_older_schema_names_the_upgrade(unchecked):
    set_version(unchecked, "0000")
    with pytest.raises(
        SchemaError, match=rf"at 0000 and this release needs {schema.HEAD}; {UPGRADE}"
    ):
        unchecked.letters.save([letter()])
    set_version(unchecked, schema.HEAD)
    assert unchecked.letters.save([letter()]).arrived == 1


def test_a_newer_schema_asks_for_a_newer_release(unchecked):
    set_version(unchecked, "9999")
    with pytest.raises(SchemaError, match=r"at 9999, newer than.*pip install --upgrade celery-dlq"):
        unchecked.check_schema()


def test_a_newer_schema_is_not_touched_by_an_upgrade(unchecked):
    set_version(unchecked, "9999")
    with pytest.raises(SchemaError, match="newer than"):
        schema.upgrade(unchecked.database)
    assert unchecked.database.read(schema.current) == "9999"


def test_there_is_no_sql_to_print_from_the_head(unchecked):
    assert "CREATE TABLE" not in schema.upgrade_sql(unchecked.database, since=schema.HEAD)


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
