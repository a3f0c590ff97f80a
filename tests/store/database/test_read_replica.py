"""A store that reads from a read replica: a standby of PostgreSQL, and a replica of MariaDB."""

from __future__ import annotations

import contextlib
from datetime import timedelta

import pytest
from chaos.clusters import ReplicatedMariaDB, ReplicatedPostgres, until
from sqlalchemy import text
from support.factories import letter
from support.servers.clusters import running

from celery_dlq.errors import SettingsError, StoreUnavailable
from celery_dlq.store.database import schema
from celery_dlq.store.database.transactions import FOLLOW_S, PAUSE_S
from celery_dlq.store.sql import SQLStore

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.service, pytest.mark.timeout(180)]


class Clock:
    """Counts seconds, which only pass in tests."""

    now = 1_000.0

    def __call__(self):
        return self.now


class Postgres:
    """A standby whose replay can be paused."""

    cluster = ReplicatedPostgres
    which = "SELECT pg_is_in_recovery()"

    def __init__(self, cluster):
        self.replica = cluster.standby

    def pause(self):
        self.replica.ask("SELECT pg_wal_replay_pause()")
        wait = "SELECT pg_get_wal_replay_pause_state() = 'paused'"
        until("the replay to pause", lambda: self.replica.ask(wait))

    def go_on(self):
        self.replica.ask("SELECT pg_wal_replay_resume()")


class MariaDB:
    """A replica that can be stopped."""

    cluster = ReplicatedMariaDB
    which = "SELECT @@read_only"

    def __init__(self, cluster):
        self.replica = cluster.replica

    def pause(self):
        self.replica.ask("STOP SLAVE SQL_THREAD")

    def go_on(self):
        self.replica.ask("START SLAVE")


@pytest.fixture(scope="module", params=[Postgres, MariaDB])
def servers(request):
    with running(request.param.cluster) as cluster:
        with contextlib.closing(SQLStore(cluster.url)) as store:
            schema.upgrade(store.database)
        servers = request.param(cluster)
        servers.primary_url, servers.all = cluster.url, cluster
        yield servers


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(servers, clock):
    store = SQLStore(servers.primary_url, timeout=2.0, monotonic=clock)
    yield store
    store.close()


@pytest.fixture
def screens(servers, store):
    """The store, which reads from the replica."""
    screens = store.reading_from(servers.replica.url)
    until("the replica to have the schema", lambda: has_schema(servers.replica.url))
    yield screens
    servers.go_on()
    screens.close()


def has_schema(url):
    with contextlib.closing(SQLStore(url)) as store:
        store.check_schema()
    return True


def of_another_process(servers, name):
    """Save a letter in a store that ``screens`` knows nothing about."""
    with contextlib.closing(SQLStore(servers.primary_url)) as store:
        store.letters.save([letter(name)])


def test_it_reads_from_the_replica_and_writes_to_the_primary(servers, screens):
    def which(connection):
        return bool(connection.scalar(text(servers.which)))

    assert screens.transactions.read(which)
    assert not screens.transactions.write(which)
    of_another_process(servers, "first")
    until("the letter to arrive", lambda: screens.letters.get("first"))


def test_the_lag_is_known(servers, screens):
    until("the replica to be up to date", lambda: screens.following().lag == timedelta(0))
    found = screens.following()
    assert str(servers.replica.port) in found.address
    servers.pause()
    of_another_process(servers, "unseen")
    until("the lag to show", lambda: screens.following().lag != timedelta(0))
    assert screens.letters.get("unseen") is None
    servers.go_on()
    until("the letter to arrive", lambda: screens.letters.get("unseen"))
    until("the replica to be up to date", lambda: screens.following().lag == timedelta(0))


def test_a_process_sees_what_it_wrote_although_the_replica_is_behind(
    servers, store, screens, clock
):
    servers.pause()
    store.letters.save([letter("own")])
    assert screens.letters.get("own") is not None
    clock.now += FOLLOW_S
    assert screens.letters.get("own") is None


def test_without_the_replica_it_reads_from_the_primary(servers, store, screens, clock):
    of_another_process(servers, "seen")
    servers.replica.stop()
    assert screens.letters.get("seen") is not None
    assert "cannot be used" in screens.following().trouble
    servers.all.start()
    clock.now += PAUSE_S
    until("the replica to be used again", lambda: back(screens, clock))


def back(screens, clock):
    clock.now += PAUSE_S
    screens.letters.get("seen")
    return not screens.following().trouble


def test_without_the_primary_screens_go_on(servers, store, screens, clock):
    of_another_process(servers, "kept")
    until("the letter to arrive", lambda: screens.letters.get("kept"))
    servers.all.primary.freeze()
    try:
        assert screens.letters.get("kept") is not None
        assert screens.now()
        with pytest.raises(StoreUnavailable):
            screens.letters.save([letter("refused")])
    finally:
        servers.all.primary.thaw()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("sqlite:///letters.sqlite3", "names a file; only a server has read replicas"),
        ("nonsense", "is not a database URL"),
        ("oracle://there/shop", "names 'oracle', which is not supported"),
    ],
)
def test_a_url_that_cannot_be_a_replica_is_refused(store, url, why):
    with pytest.raises(SettingsError, match=f"dlq_store_read_url {why}"):
        store.reading_from(url)


def test_another_kind_of_database_is_refused(store, servers):
    other = (
        "mysql://there/shop" if servers.cluster is ReplicatedPostgres else "postgresql://there/shop"
    )
    with pytest.raises(SettingsError, match="a read replica is of the same kind"):
        store.reading_from(other)
    with pytest.raises(SettingsError, match="lists several servers; name one"):
        store.reading_from(servers.primary_url.replace("127.0.0.1", "127.0.0.1,127.0.0.2", 1))


def test_a_replica_that_does_not_have_the_store_is_not_used(store, servers):
    """Such as a database that does not exist."""
    of_another_process(servers, "there")
    screens = store.reading_from(servers.replica.url.rpartition("/")[0] + "/nowhere")
    assert screens.letters.get("there") is not None
    assert "nowhere" in screens.following().trouble
    screens.close()
