"""Flower with a read replica. A server is its own replica here."""

from datetime import timedelta

import pytest
from support.factories import letter

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.store.database import schema
from celery_dlq.store.database.dialects.postgresql import PostgreSQL
from celery_dlq.store.database.engine import Database

pytestmark = pytest.mark.service


@pytest.fixture
def store(app, own_postgres_url):
    """The store, whose letters the pages read from the replica."""
    database = Database(own_postgres_url)
    schema.upgrade(database)
    database.close()
    app.conf.dlq_store_url = app.conf.dlq_store_read_url = own_postgres_url
    queue = DeadLetterQueue.of(app)
    yield queue.store
    queue.read_store.close()


def test_every_page_says_how_far_the_replica_is_behind(ann, store, monkeypatch):
    monkeypatch.setattr(PostgreSQL, "lag", lambda _self, _connection: timedelta(seconds=7))
    for address in ("/dead-letters", "/dead-letters/groups", "/dead-letters/letters"):
        page = ann.get(address)
        assert page.status == 200
        [(_, text)] = page.find("p", id="dlq-replica")
        assert text.split()[:4] == ["Read", "from", "the", "replica"]
        assert text.strip().endswith("7s behind.")


def test_an_act_shows_at_once(ann, store):
    store.letters.save([letter("5aved")])
    assert "5aved" in ann.get("/dead-letters/letters").text


def test_the_metrics_tell_the_lag(app, store):
    following = DeadLetterQueue.of(app).measure().following
    assert (following.lag, following.trouble) == (timedelta(0), "")
