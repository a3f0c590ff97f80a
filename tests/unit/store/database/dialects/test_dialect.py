from __future__ import annotations

import pytest
from sqlalchemy import exc
from sqlalchemy.engine import make_url

from celery_dlq.errors import RecordRefused, SchemaError, StoreError, StoreUnavailable
from celery_dlq.store.database.dialects import dialect_for

POSTGRES = make_url("postgresql+psycopg://dlq:hunter2@db/shop")
MYSQL = make_url("mysql+pymysql://dlq:hunter2@db/shop")
SQLITE = make_url("sqlite:///dlq.sqlite3")

SECRET_SQL = "INSERT INTO celery_dead_letter VALUES ('card number')"


class PostgresError(Exception):
    def __init__(self, sqlstate, message="it said so"):
        super().__init__(message)
        self.sqlstate = sqlstate


class MySQLError(Exception):
    #: The same for many errors.
    sqlstate = "42000"


def postgres(sqlstate, message="it said so", kind=exc.OperationalError):
    return kind(SECRET_SQL, {}, PostgresError(sqlstate, message))


def mysql(code, message="it said so", kind=exc.OperationalError):
    return kind(SECRET_SQL, {}, MySQLError(code, message))


def store_error(error, url):
    return dialect_for(url).store_error(error, url)


@pytest.mark.parametrize(
    ("error", "url"),
    [
        (postgres("40001"), POSTGRES),
        (postgres("40P01"), POSTGRES),
        (mysql(1213), MYSQL),
        (mysql(1020), MYSQL),
        (mysql(1062, kind=exc.IntegrityError), MYSQL),
    ],
)
def test_an_error_that_another_writer_caused_is_repeated(error, url):
    assert dialect_for(url).is_repeatable(error)


@pytest.mark.parametrize(
    ("error", "url"),
    [
        (postgres("57014"), POSTGRES),
        (postgres(None), POSTGRES),
        (mysql(1205), MYSQL),
        (mysql(2013), MYSQL),
    ],
)
def test_an_error_that_took_too_long_already_is_not_repeated(error, url):
    assert not dialect_for(url).is_repeatable(error)


UNAVAILABLE = [
    (postgres(None, "connection refused"), POSTGRES, "cannot be used"),
    (postgres("08006"), POSTGRES, "cannot be used"),
    (postgres("28P01"), POSTGRES, "cannot be used"),
    (postgres("3D000"), POSTGRES, "cannot be used"),
    (postgres("53300"), POSTGRES, "cannot be used"),
    (postgres("57P01"), POSTGRES, "cannot be used"),
    (postgres("40P01"), POSTGRES, "cannot be used"),
    (postgres("57014"), POSTGRES, "took too long"),
    (postgres("55P03"), POSTGRES, "took too long"),
    (mysql(2003), MYSQL, "cannot be used"),
    (mysql(1045), MYSQL, "cannot be used"),
    (mysql(1213), MYSQL, "cannot be used"),
    (mysql(0, "", exc.InterfaceError), MYSQL, "cannot be used"),
    (mysql(1205), MYSQL, "took too long"),
    (mysql(1969), MYSQL, "took too long"),
    (mysql(3024), MYSQL, "took too long"),
    (exc.TimeoutError("QueuePool limit"), POSTGRES, "no connection free"),
]


@pytest.mark.parametrize(("error", "url", "words"), UNAVAILABLE)
def test_a_database_that_is_away_is_unavailable(error, url, words):
    found = store_error(error, url)
    assert isinstance(found, StoreUnavailable)
    assert words in str(found)


@pytest.mark.parametrize(
    ("error", "url"),
    [
        (postgres("42P01", kind=exc.ProgrammingError), POSTGRES),
        (postgres("42703", kind=exc.ProgrammingError), POSTGRES),
        (mysql(1146, kind=exc.ProgrammingError), MYSQL),
        (mysql(1054), MYSQL),
        (exc.OperationalError(SECRET_SQL, {}, Exception("no such table: x")), SQLITE),
        (exc.OperationalError(SECRET_SQL, {}, Exception("no such column: x")), SQLITE),
    ],
)
def test_a_missing_table_or_column_names_the_upgrade(error, url):
    found = store_error(error, url)
    assert isinstance(found, SchemaError)
    assert "celery -A <app> dlq db upgrade" in str(found)


@pytest.mark.parametrize(
    ("said", "kind", "step"),
    [
        (
            "attempt to write a readonly database",
            StoreError,
            "make the file and its directory writable",
        ),
        ("unable to open database file", StoreError, "check that its directory exists"),
        ("file is not a database", StoreError, "set dlq_store_url"),
        ("database disk image is malformed", StoreError, "from a backup"),
        ("database or disk is full", StoreError, "free space"),
        ("disk I/O error", StoreUnavailable, "check dlq_store_url and the disk"),
    ],
)
def test_sqlite_says_what_to_do(said, kind, step):
    found = store_error(exc.OperationalError(SECRET_SQL, {}, Exception(said)), SQLITE)
    assert type(found) is kind
    assert said in str(found)
    assert step in str(found)


@pytest.mark.parametrize(
    ("error", "url"),
    [
        (postgres("22003", kind=exc.DataError), POSTGRES),
        (postgres("54000"), POSTGRES),
        (mysql(1406, kind=exc.DataError), MYSQL),
        (mysql(1048, kind=exc.IntegrityError), MYSQL),
        (exc.DataError(SECRET_SQL, {}, Exception("string or blob too big")), SQLITE),
    ],
)
def test_what_only_this_record_causes_is_told_from_a_store_that_fails(error, url):
    assert type(store_error(error, url)) is RecordRefused


@pytest.mark.parametrize(
    ("error", "url"),
    [
        (postgres("42501"), POSTGRES),
        (mysql(1044), MYSQL),
        (mysql(1142), MYSQL),
        (mysql(1143), MYSQL),
    ],
)
def test_a_right_that_is_missing_is_to_be_given(error, url):
    found = store_error(error, url)
    assert type(found) is StoreError
    assert "rights that are named by `celery dlq help install-on-postgresql-or-mysql`" in str(found)


@pytest.mark.parametrize(
    ("error", "url"), [(postgres("25006"), POSTGRES), (mysql(1290), MYSQL), (mysql(1836), MYSQL)]
)
def test_a_read_only_server_fails_for_every_record(error, url):
    found = store_error(error, url)
    assert type(found) is StoreError
    assert "is read-only" in str(found)


def test_what_is_nobody_elses_fault_names_the_doctor():
    found = store_error(postgres("42883", kind=exc.ProgrammingError), POSTGRES)
    assert type(found) is StoreError
    assert "celery -A <app> dlq doctor" in str(found)


@pytest.mark.parametrize(("error", "url", "words"), UNAVAILABLE)
def test_an_error_is_one_line_without_sql_and_password(error, url, words):
    found = str(store_error(error, url))
    assert "\n" not in found
    assert "card number" not in found
    assert "hunter2" not in found


def test_a_driver_that_quotes_the_password_is_silenced():
    error = postgres(None, 'invalid dsn "host=db password=hunter2"\nLINE 1: ...')
    assert "password=***" in str(store_error(error, POSTGRES))


def test_a_value_that_never_reached_the_database_is_a_refusal():
    error = exc.StatementError("it said so", SECRET_SQL, {}, ValueError("needs a time zone"))
    found = store_error(error, POSTGRES)
    assert type(found) is RecordRefused
    assert "refused (needs a time zone); run: celery -A <app> dlq doctor" in str(found)
