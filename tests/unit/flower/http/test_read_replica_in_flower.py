"""Flower with a read replica. A server is its own replica here, or another database is a replica that lacks
all changes."""

import json
import uuid
from datetime import timedelta

import pytest
from support.factories import letter
from support.servers.databases import postgres_database

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.model.states import State
from celery_dlq.store.database import schema, transactions
from celery_dlq.store.database.dialects.postgresql import PostgreSQL
from celery_dlq.store.database.engine import Database

pytestmark = pytest.mark.service


def make_tables(url):
    database = Database(url)
    schema.upgrade(database)
    database.close()


@pytest.fixture
def replica_url(own_postgres_url):
    return own_postgres_url


@pytest.fixture
def store(app, own_postgres_url, replica_url):
    """The store, whose letters the pages read from the replica."""
    make_tables(own_postgres_url)
    app.conf.dlq_store_url, app.conf.dlq_store_read_url = own_postgres_url, replica_url
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


class TestALateReplica:
    @pytest.fixture
    def replica_url(self):
        with postgres_database() as url:
            make_tables(url)
            yield url

    @pytest.fixture
    def task(self, store, monkeypatch):
        """A task with two letters, which only the primary has. Other processes saved them: after its own
        changes, Flower reads from the primary for some seconds."""
        monkeypatch.setattr(transactions, "FOLLOW_S", 0.0)
        name = f"shop.late_{uuid.uuid4().hex[:8]}"
        store.letters.save([letter(f"{name}.{number}", task=name) for number in range(2)])
        return name

    def test_an_act_by_a_page_is_on_the_letters_of_the_primary(self, ann, store, task):
        assert task not in ann.get("/dead-letters/letters").text
        page = ann.get(f"/dead-letters/discard?task={task}")
        assert f"{task}.1" in page.text
        form = dict(page.form("/dead-letters/discard"))
        answer = ann.post("/dead-letters/discard", {**form, "number": "2", "why": "a test"})
        assert answer.status == 303
        assert store.letters.get(f"{task}.1").state is State.DISCARDED

    def test_an_act_by_rest_is_on_the_letters_of_the_primary(self, ann, task):
        given = {"task": task, "number": 2, "why": "a test"}
        answer = ann.ask("POST", "/api/dead-letters/discard", json.dumps(given), _JSON)
        assert (answer.status, json.loads(answer.body)) == (200, {"discarded": 2})


_JSON = {"Content-Type": "application/json"}
