"""The doctor about a pooler in front of the store."""

import pytest
from support.servers.pgbouncer import pgbouncer

from celery_dlq.store.database.dialects.postgresql import PostgreSQL
from celery_dlq.store.database.servers import Pooler

pytestmark = pytest.mark.service


@pytest.fixture
def found(app, run):
    """Gives the level and text of each of the check's lines, with this URL."""

    def found(url):
        app.conf.dlq_store_url = url
        lines = [line.split(maxsplit=2) for line in run("doctor").stdout.splitlines()[1:]]
        return [(level, text) for name, level, text in lines if name == "pooler"]

    return found


@pytest.fixture
def answering(monkeypatch):
    """Lets this pooler be found."""

    def answering(**facts):
        pooler = Pooler(name="PgPool-II", version="4.3.5", **facts)
        monkeypatch.setattr(PostgreSQL, "pooler", lambda *_given: pooler)

    return answering


@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_a_server_that_is_reached_directly_gets_no_line(found, request, kind):
    assert found(request.getfixturevalue(f"own_{kind}_url")) == []


def test_a_store_in_a_file_gets_no_line(found, tmp_path):
    assert found(f"sqlite:///{tmp_path / 'dlq.sqlite3'}") == []


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_pgbouncer_is_noticed(found, own_postgres_url, mode):
    with pgbouncer(own_postgres_url, mode=mode) as url:
        [(level, text)] = found(url)
    assert level == "ok"
    assert text == (
        "a pooler, such as PgBouncer, stands between this machine and PostgreSQL; transaction mode is enough "
        "for the store"
    )


def test_pgbouncer_in_statement_mode_is_an_error_with_its_reason(found, own_postgres_url):
    with pgbouncer(own_postgres_url, mode="statement") as url:
        [(level, text)] = found(url)
    assert level == "error"
    assert "refuses transactions (transaction blocks not allowed in statement pooling mode)" in text
    assert "set PgBouncer's pool_mode to transaction" in text


def test_a_server_that_is_away_is_not_asked_twice(found):
    assert found("postgresql://127.0.0.1:1/shop") == []


def test_pgpool_that_sends_everything_to_the_primary(found, answering, own_postgres_url):
    answering()
    [(level, text)] = found(own_postgres_url)
    assert level == "ok"
    assert text == (
        "PgPool-II 4.3.5 stands between this machine and PostgreSQL, and sends the store's queries to the "
        "primary"
    )


def test_pgpool_that_may_ask_a_standby_is_an_error_with_the_next_step(
    found, answering, own_postgres_url
):
    answering(balances=True)
    [(level, text)] = found(own_postgres_url)
    assert level == "error"
    assert "app_name_redirect_preference_list = 'celery_dlq.*:primary'" in text
    assert text.endswith("dlq help install-on-postgresql-or-mysql")


def test_the_next_step_names_the_connections_as_the_url_does(found, answering, own_postgres_url):
    answering(balances=True)
    [(_level, text)] = found(f"{own_postgres_url}?application_name=letters")
    assert "app_name_redirect_preference_list = 'letters:primary'" in text


def test_pgpool_that_answers_from_a_cache_is_a_warning(found, answering, own_postgres_url):
    answering(caches=True)
    [(level, text)] = found(own_postgres_url)
    assert level == "warning"
    assert "memory_cache_enabled = off" in text
