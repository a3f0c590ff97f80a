"""The doctor about the read replica. A server is its own replica here, which is never behind."""

import contextlib
from datetime import timedelta

import pytest
from support.factories import T0, attempt, letter

from celery_dlq.settings import READ_URL_VARIABLE
from celery_dlq.store.database import schema
from celery_dlq.store.database.dialects.postgresql import PostgreSQL
from celery_dlq.store.sql import SQLStore

pytestmark = pytest.mark.service


@pytest.fixture
def found(app, run, own_postgres_url, monkeypatch):
    """Gives the level and text of each of the check's lines, with this read replica."""
    app.conf.dlq_store_url = own_postgres_url
    with contextlib.closing(SQLStore(own_postgres_url)) as store:
        schema.upgrade(store.database)

    def found(url):
        monkeypatch.setenv(READ_URL_VARIABLE, url)
        lines = [line.split(maxsplit=2) for line in run("doctor").stdout.splitlines()[1:]]
        return [(level, text) for name, level, text in lines if name == "replica"]

    return found


def test_a_store_without_a_replica_gets_no_line(found):
    assert found("") == []


def test_the_replica_is_named_with_its_lag(found, own_postgres_url):
    [(level, text)] = found(own_postgres_url)
    assert level == "ok"
    assert text.startswith("Read from the replica postgresql+psycopg://")
    assert text.endswith(", 0s behind")


def test_a_replica_far_behind_is_a_warning(found, own_postgres_url, monkeypatch):
    monkeypatch.setattr(PostgreSQL, "lag", lambda _self, _connection: timedelta(minutes=3))
    [(level, text)] = found(own_postgres_url)
    assert level == "warning"
    assert text.endswith("3m behind, so screens show what was true then; check its replication")


def test_a_replica_that_fails_is_a_warning(found, own_postgres_url):
    port = own_postgres_url.rpartition("@")[2].partition("/")[0].partition(":")[2]
    [(level, text)] = found(own_postgres_url.replace(f":{port}/", ":1/"))
    assert level == "warning"
    assert text.startswith("screens read from the primary, because the replica fails: ")
    assert "cannot be used" in text


def test_a_replica_of_another_database_is_a_warning(found, own_postgres_url, postgres_url):
    with contextlib.closing(SQLStore(own_postgres_url)) as store:
        store.letters.save([letter("only-here", attempt(failed_at=T0 - timedelta(days=1)))])
    with contextlib.closing(SQLStore(postgres_url)) as other:
        schema.upgrade(other.database)
    [(level, text)] = found(postgres_url)
    assert level == "warning"
    assert text.startswith("it does not have the letter only-here, which failed more than 1h ago; ")


def test_a_password_in_the_settings_is_a_warning(found, app, own_postgres_url):
    server = own_postgres_url.rpartition("@")[2]
    app.conf.dlq_store_read_url = f"postgresql://reader:secret@{server}"
    (level, text), *_ = found("")
    assert level == "warning"
    assert text.endswith(f"set the URL in the environment variable {READ_URL_VARIABLE} instead")
    assert "secret" not in text
