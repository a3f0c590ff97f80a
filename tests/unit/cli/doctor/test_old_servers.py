"""The doctor about a database that is older than what the store needs."""

from types import SimpleNamespace

import pytest

from celery_dlq.store.database.dialects.mysql import MySQL
from celery_dlq.store.database.dialects.postgresql import PostgreSQL


def connected_to(*version, **facts):
    return SimpleNamespace(dialect=SimpleNamespace(server_version_info=version, **facts))


@pytest.mark.parametrize(
    ("dialect", "connection", "why"),
    [
        (PostgreSQL(), connected_to(12, 22), "is PostgreSQL 12.22, and the store needs 13 or newer;"),
        (PostgreSQL(), connected_to(13, 0), ""),
        (MySQL(), connected_to(10, 5, 8, is_mariadb=True), "is MariaDB 10.5.8, and the store needs 10.6 "),
        (MySQL(), connected_to(10, 6, 1, is_mariadb=True), ""),
        (MySQL(), connected_to(5, 7, 44, is_mariadb=False), "is MySQL 5.7.44, and the store needs 8.0 "),
        (MySQL(), connected_to(9, 7, 4, is_mariadb=False), ""),
    ],
)  # fmt: skip
def test_each_product_has_its_oldest_version(dialect, connection, why):
    found = dialect.why_too_old(connection)
    assert found.startswith(why)
    assert bool(found) == bool(why)


@pytest.mark.parametrize(("kind", "dialect"), [("postgres", PostgreSQL), ("mysql", MySQL)])
def test_it_says_so_before_the_schema_is_missed(app, run, request, monkeypatch, kind, dialect):
    app.conf.dlq_store_url = request.getfixturevalue(f"own_{kind}_url")
    monkeypatch.setattr(dialect, "oldest", lambda *_: ("Server", (99, 1)))
    done = run("doctor")
    [line] = [line for line in done.stdout.splitlines() if line.startswith("store ")]
    assert line.split()[1] == "error"
    assert "and the store needs 99.1 or newer; upgrade the server" in line
    assert done.exit_code == 1
