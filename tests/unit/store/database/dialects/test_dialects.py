from __future__ import annotations

import pytest

from celery_dlq.errors import SettingsError
from celery_dlq.store.database.dialects import parse_url


@pytest.mark.parametrize(
    ("given", "driver"),
    [
        ("sqlite:///a.sqlite3", "sqlite"),
        ("sqlite+pysqlite:///a.sqlite3", "sqlite"),
        ("postgres://u@h/d", "postgresql+psycopg"),
        ("postgresql://u@h/d", "postgresql+psycopg"),
        ("postgresql+psycopg://u@h/d", "postgresql+psycopg"),
        ("mysql://u@h/d", "mysql+pymysql"),
        ("mysql+pymysql://u@h/d", "mysql+pymysql"),
        ("mariadb://u@h/d", "mysql+pymysql"),
        ("mariadb+pymysql://u@h/d", "mysql+pymysql"),
    ],
)
def test_common_ways_to_write_a_url_name_our_driver(given, driver):
    assert parse_url(given).drivername == driver


def test_a_password_survives_the_rewriting():
    assert parse_url("postgres://u:p%40ss@h/d").password == "p@ss"


@pytest.mark.parametrize(
    "scheme", ["oracle", "postgresql+psycopg2", "mysql+mysqldb", "sqlite+aiosqlite"]
)
def test_an_unsupported_database_is_named_with_those_that_are(scheme):
    with pytest.raises(SettingsError, match="not supported; use sqlite, postgresql") as caught:
        parse_url(f"{scheme}://user:hunter2@host/name")
    assert scheme in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "given", ["hunter2", "postgresql:/hunter2", "postgresql://u:hunter2@h:port/d"]
)
def test_what_is_no_url_is_refused_without_repeating_it(given):
    with pytest.raises(SettingsError, match="not a database URL; write it like") as caught:
        parse_url(given)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_part_of_a_password_is_not_taken_for_a_host():
    with pytest.raises(SettingsError, match="write it as %40") as caught:
        parse_url("postgresql://u:hunter2@x@h/d")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("given", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_in_memory_is_refused(given):
    with pytest.raises(SettingsError, match=r"in memory.*name a file"):
        parse_url(given)
