"""Commands that only show read from the read replica. A server is its own replica here."""

from contextlib import closing

import pytest
from support.factories import letter

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.store.database import schema
from celery_dlq.store.database.transactions import ReplicaTransactions
from celery_dlq.store.sql import SQLStore

pytestmark = pytest.mark.service


@pytest.fixture
def queue(app, own_postgres_url):
    with closing(SQLStore(own_postgres_url)) as store:
        schema.upgrade(store.database)
        store.letters.save([letter("0d3f1111")])
    app.conf.dlq_store_url = app.conf.dlq_store_read_url = own_postgres_url
    return DeadLetterQueue.of(app)


@pytest.fixture
def reads(monkeypatch):
    """How often a replica was read from."""
    found = []
    read = ReplicaTransactions.read

    def noted(self, work):
        found.append(work)
        return read(self, work)

    monkeypatch.setattr(ReplicaTransactions, "read", noted)
    return found


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("show", "0d3f1111"),
        ("stats",),
        ("groups",),
        ("groups", "show", "9c1e", "--format", "markdown"),
        ("audit",),
        ("operations", "list"),
        ("auto", "list"),
    ],
)
def test_a_command_that_only_shows_reads_from_the_replica(run, queue, reads, words):
    assert run(*words).exit_code == 0
    assert reads


def test_an_act_reads_what_it_acts_on_from_the_primary(run, queue, reads):
    assert run("discard", "0d3f1111", "--why", "a test").exit_code == 0
    assert not reads


def test_stats_say_how_far_the_replica_is_behind(run, read, queue):
    assert run("stats").stdout.rstrip().endswith(", 0s behind.")
    found = read("stats")["read_replica"]
    assert (found["lag_s"], found["trouble"]) == (0.0, "")


def test_a_replica_of_another_kind_is_refused(run, queue, app):
    app.conf.dlq_store_read_url = "sqlite:///other.sqlite3"
    done = run("list")
    assert done.exit_code != 0
    assert "dlq_store_read_url names a file; only a server has read replicas" in done.stderr
