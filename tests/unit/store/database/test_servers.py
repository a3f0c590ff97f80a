"""The servers of a URL; and what is known of the server behind a connection by its answers. Real poolers
answer in tests/store/database/test_pooler_of_a_way.py and tests/unit/cli/doctor/test_pooler.py."""

from __future__ import annotations

from types import SimpleNamespace

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from celery_dlq.errors import SettingsError
from celery_dlq.store.database.client import Client
from celery_dlq.store.database.dialects import parse_url
from celery_dlq.store.database.dialects.postgresql import PostgreSQL
from celery_dlq.store.database.servers import Pooler, address, find_pooler, hosts_of


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


#: The number in the greeting, and the names of the store's connections.
PID, NAMES = 4711, ["celery_dlq worker a", "celery_dlq cli a"]


class Refused(Exception):
    pass


class Cursor:
    """The results of one statement, each as its column names and its rows."""

    def __init__(self, *results):
        self._results = list(results)

    @property
    def description(self):
        return [SimpleNamespace(name=name) for name in self._results[0][0]]

    def fetchall(self):
        return self._results[0][1]

    def nextset(self):
        del self._results[0]
        return bool(self._results)


class Connection:
    """A connection of psycopg to a server that knows these answers, and refuses any other question."""

    Error = Refused

    def __init__(self, answers):
        self.info = SimpleNamespace(backend_pid=PID, user="shop", dbname="letters")
        self._answers = answers

    def execute(self, question):
        if question not in self._answers:
            raise Refused(f"cannot do {question}\nLINE 1")
        return self._answers[question]


def plain(pid, *accepted):
    return Connection(
        {
            "SELECT pg_backend_pid() AS pid": Cursor((["pid"], [(pid,)])),
            **{question: Cursor(([], [])) for question in accepted},
        }
    )


def pgpool(nodes=(("primary", "0.500000"), ("standby", "0.500000")), **settings):
    shown = {"load_balance_mode": "on", **settings}
    answers = {f"PGPOOL SHOW {name}": Cursor(([name], [(value,)])) for name, value in shown.items()}
    answers["SHOW pool_version"] = Cursor(
        (["pool_version"], []), (["pool_version"], [("4.3.5 (tamahomeboshi)",)])
    )
    if nodes:
        answers["SHOW pool_nodes"] = Cursor((["role", "lb_weight"], list(nodes)))
    return Connection(answers)


def balances(**changes):
    return find_pooler(pgpool(**changes), NAMES).balances


def test_a_server_that_greets_with_its_own_number_is_reached_directly():
    assert find_pooler(plain(PID), NAMES) is None


def test_a_server_that_answers_nothing_is_not_called_a_pooler():
    assert find_pooler(Connection({}), NAMES) is None


def test_another_number_in_the_greeting_is_a_poolers():
    assert find_pooler(plain(PID + 1, "BEGIN", "ROLLBACK"), NAMES) == Pooler()


def test_a_pooler_may_refuse_transactions():
    assert find_pooler(plain(PID + 1), NAMES) == Pooler(refuses="cannot do BEGIN")


def test_pgpool_says_its_name_and_version():
    off = pgpool(load_balance_mode="off")
    assert find_pooler(off, NAMES) == Pooler(name="PgPool-II", version="4.3.5")


def test_pgpool_without_a_version():
    silent = Connection(
        {"PGPOOL SHOW load_balance_mode": Cursor((["load_balance_mode"], [("off",)]))}
    )
    assert find_pooler(silent, NAMES) == Pooler(name="PgPool-II")


def test_pgpool_may_have_a_cache():
    assert find_pooler(pgpool(memory_cache_enabled="on"), NAMES).caches


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([("primary", "0.500000"), ("standby", "0.500000")], True),
        ([("main", "0.500000"), ("replica", "0.500000")], True),
        # Where no server has a weight, they all have the same.
        ([("primary", "-nan"), ("standby", "-nan")], True),
        ([("primary", "1.000000"), ("standby", "0.000000")], False),
        ([("primary", "-nan")], False),
        # Soon after its start, it does not know its primary.
        ([("standby", "1.000000")], False),
        ([("standby", "1.000000"), ("standby", "0.000000")], False),
        ([("standby", "0.500000"), ("standby", "0.500000")], True),
        # The primary gets no queries.
        ([("primary", "0.000000"), ("standby", "1.000000")], True),
        # It does not say.
        ([], True),
    ],
)
def test_queries_are_balanced_between_servers_with_a_weight(nodes, expected):
    assert balances(nodes=nodes) is expected


def test_nothing_is_balanced_if_it_is_off_or_the_mode_is_raw():
    assert not balances(load_balance_mode="off")
    assert not balances(backend_clustering_mode="raw")
    assert balances(backend_clustering_mode="streaming_replication")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("celery_dlq.*:primary", False),
        ("psql:standby,CELERY_DLQ.*:primary(1.0)", False),
        ("celery_dlq worker.*:primary,celery_dlq cli.*:primary", False),
        ("celery_dlq worker.*:primary", True),
        ("celery_dlq.*:primary(0.8)", True),
        ("celery_dlq.*:standby", True),
        ("celery_dlq.*:0", True),
        # A name is matched as a whole, and the first match counts.
        ("celery_dlq:primary", True),
        ("celery.*:standby,celery_dlq.*:primary", True),
        ("celery_dlq(:primary", True),
        ("nonsense", True),
        ("", True),
    ],
)
def test_a_list_of_names_keeps_the_stores_queries_on_the_primary(names, expected):
    assert balances(app_name_redirect_preference_list=names) is expected


def test_the_list_of_names_counts_before_that_of_databases_and_this_one_before_that_of_users():
    assert not balances(database_redirect_preference_list="letters:primary")
    assert not balances(user_redirect_preference_list="shop:primary")
    assert balances(
        app_name_redirect_preference_list="celery_dlq.*:standby",
        database_redirect_preference_list="letters:primary",
    )
    assert balances(
        database_redirect_preference_list="letters:standby",
        user_redirect_preference_list="shop:primary",
    )
