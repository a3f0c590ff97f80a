"""The servers of a URL."""

from __future__ import annotations

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from celery_dlq.errors import SettingsError
from celery_dlq.store.database.client import Client
from celery_dlq.store.database.dialects import parse_url
from celery_dlq.store.database.dialects.postgresql import PostgreSQL
from celery_dlq.store.database.servers import address, hosts_of


@pytest.mark.parametrize(
    ("given", "hosts"),
    [
        ("postgresql://u:p%40x@db1:5432,db2:5433/shop", ("db1:5432", "db2:5433")),
        ("postgres://db1,db2", ("db1", "db2")),
        ("mysql://u@db1,db2:3307,db3/shop?charset=utf8mb4", ("db1", "db2:3307", "db3")),
        ("postgresql://u@/shop?host=db1:5432&host=db2:5433", ("db1:5432", "db2:5433")),
        ("postgresql://u@db1/shop", ()),
        ("postgresql://u@/shop?host=/run/postgresql", ()),
        ("postgresql://u:a,b@db1/c,d", ()),
        ("sqlite:///a,b.sqlite3", ()),
    ],
)
def test_the_servers_of_a_list(given, hosts):
    url = parse_url(given)
    assert hosts_of(url) == hosts
    assert parse_url(url.render_as_string(hide_password=False)) == url


def test_the_other_parts_of_a_url_with_a_list_stay():
    url = parse_url("postgresql://u:p%40x@db1,db2/shop?application_name=billing")
    assert (url.username, url.password, url.database) == ("u", "p@x", "shop")
    assert url.query["application_name"] == "billing"


@pytest.mark.parametrize("hosts", ["db1,", ",db1", "db1:,db2", "db1,db2:port", "db1,[::1]:5432"])
def test_a_list_with_something_else_is_refused(hosts):
    with pytest.raises(SettingsError, match="not a database URL") as caught:
        parse_url(f"postgresql://u:hunter2@{hosts}/shop")
    assert "hunter2" not in str(caught.value)


def test_a_list_is_shown_as_it_is_written():
    url = parse_url("postgresql://u:hunter2@db1:5432,db2:5433/shop")
    assert address(url) == "postgresql+psycopg://u:***@db1:5432,db2:5433/shop"


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("host=a&host=b", "read-write"),
        ("host=a&host=b&target_session_attrs=any", "any"),
        ("host=a&target_session_attrs=primary", "primary"),
        ("host=a", None),
    ],
)
def test_the_server_that_accepts_writes_is_wanted_unless_the_url_says_otherwise(query, wanted):
    url, given = make_url(f"postgresql+psycopg://u@/d?{query}"), {}
    engine = PostgreSQL().open(url, 5.0, Client())

    @event.listens_for(engine, "do_connect")
    def stop(_dialect, _record, _args, arguments):
        given.update(arguments)
        raise psycopg.OperationalError

    with pytest.raises(OperationalError):
        engine.connect()
    assert given.get("target_session_attrs") == wanted
