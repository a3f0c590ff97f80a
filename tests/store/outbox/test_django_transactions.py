"""Messages in Django's transactions."""

import contextlib
import logging
import sys

import pymysql
import pytest
import sqlalchemy as sa

from celery_dlq.outbox.sender import Outbox
from celery_dlq.store.database.tables import parked

django = pytest.importorskip("django")

pytestmark = pytest.mark.on_servers


def database(url):
    """An entry of ``DATABASES``."""
    url = sa.make_url(url)
    return {
        "ENGINE": f"django.db.backends.{url.get_backend_name().replace('sqlite', 'sqlite3')}",
        "NAME": url.database,
        "HOST": url.host or "",
        "PORT": str(url.port or ""),
        "USER": url.username or "",
    }


@pytest.fixture
def add_database(tmp_path, monkeypatch):
    """Adds a database to those of Django until the end of the test, and returns its connection."""
    from django.conf import settings

    monkeypatch.setitem(sys.modules, "MySQLdb", pymysql)
    if not settings.configured:
        settings.configure(DATABASES={"default": database(f"sqlite:///{tmp_path}/default.sqlite3")})
        django.setup()
    from django.db import connections

    added = []

    def add(alias, url):
        given = connections.configure_settings({"default": {}, alias: database(url)})
        connections.settings[alias] = given[alias]
        added.append(alias)
        return connections[alias]

    yield add
    for alias in added:
        connections[alias].close()
        del connections[alias], connections.settings[alias]


@pytest.fixture
def connection(add_database, shop):
    return add_database("shop", shop.url)


@pytest.fixture
def atomic(connection):
    from django.db import transaction

    return lambda: transaction.atomic("shop")


def place(shop, connection, order):
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO shop_order VALUES (%s)", [order])
    shop.charge.delay(order)


def test_a_message_is_sent_after_the_commit(shop, connection, atomic):
    with atomic():
        place(shop, connection, 1)
        assert shop.sent() == []

    assert shop.orders() == shop.sent() == [1]
    assert shop.rows() == [(1, "released", 1)]


def test_a_message_is_gone_with_its_transaction(shop, connection, atomic):
    with contextlib.suppress(ZeroDivisionError), atomic():
        place(shop, connection, 1)
        1 / 0  # noqa: B018

    assert shop.orders() == shop.sent() == shop.rows() == []


def test_a_message_is_gone_with_its_savepoint(shop, connection, atomic):
    with atomic():
        place(shop, connection, 1)
        with contextlib.suppress(ZeroDivisionError), atomic():
            place(shop, connection, 2)
            with atomic():
                place(shop, connection, 3)
            1 / 0  # noqa: B018
        with atomic(), atomic():
            place(shop, connection, 4)

    assert shop.orders() == shop.sent() == [1, 4]
    assert shop.rows() == [(1, "released", 1), (4, "released", 1)]


def test_a_worker_sends_it_if_the_process_dies_after_the_commit(
    shop, connection, atomic, monkeypatch
):
    monkeypatch.setattr(Outbox, "send_committed", lambda *_args: None)
    with atomic():
        place(shop, connection, 1)

    assert shop.rows() == [(1, "parked", 1)]
    assert 0 < shop.store.parked.next_due(shop.dlq.hold.place) <= 60


def test_outside_a_transaction_it_is_sent_at_once(shop, connection, atomic):
    from django.db import transaction

    place(shop, connection, 1)
    assert shop.sent() == [1]

    with atomic():
        transaction.on_commit(lambda: shop.charge.delay(2), using="shop")
    assert shop.sent() == [2]
    assert shop.rows() == []


def test_a_broken_transaction_takes_no_message(shop, connection, atomic):
    from django.db import IntegrityError, transaction

    place(shop, connection, 1)
    shop.sent()
    with atomic():
        with pytest.raises(IntegrityError), transaction.atomic("shop", savepoint=False):
            place(shop, connection, 1)
        with pytest.raises(transaction.TransactionManagementError):
            shop.charge.delay(1)

    assert shop.sent() == shop.rows() == []


def test_an_error_of_the_database_is_djangos(shop, connection, atomic):
    from django.db import DatabaseError

    shop.dlq.store  # noqa: B018 - its schema is checked
    shop.store.database.write(lambda one: parked.drop(one))
    try:
        with pytest.raises(DatabaseError), atomic():
            shop.charge.delay(1)
    finally:
        shop.store.database.write(lambda one: parked.create(one))

    assert shop.sent() == []


def test_tests_of_users_capture_the_calls(shop, connection, atomic):
    from django.test import TestCase

    with atomic():
        with TestCase.captureOnCommitCallbacks(using="shop") as calls:
            shop.charge.delay(1)
        assert len(calls) == 1
    assert shop.sent() == [1]


def test_another_database_is_reported_once(shop, add_database, tmp_path, caplog):
    from django.db import connections, transaction

    add_database("other", f"sqlite:///{tmp_path}/other.sqlite3")
    caplog.set_level(logging.WARNING, "celery_dlq")
    for number in (1, 2):
        with transaction.atomic("other"):
            shop.charge.delay(number)

    assert shop.sent() == [1, 2]
    [text] = [one.getMessage() for one in caplog.records if "none of the DATABASES" in one.message]
    assert "other.sqlite3" in text
    assert "other" in connections.settings
