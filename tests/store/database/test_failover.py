"""The store when one of its servers fails: a primary whose standby is promoted, and a Galera cluster."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from chaos.clusters import AsynchronousPostgres, Galera, ReplicatedPostgres, until
from sqlalchemy import select, text, update
from support.factories import T0, letter, operation
from support.servers.clusters import running
from support.stores.rollup_checks import assert_counts_hold

from celery_dlq import Filter
from celery_dlq.errors import StoreError, StoreUnavailable
from celery_dlq.store.database import schema, tables
from celery_dlq.store.sql import SQLStore

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.service, pytest.mark.timeout(180)]

TIMEOUT_S = 1.0

#: Letters, asked on the standby.
_COUNT = f"SELECT count(*) FROM {tables.letter.name}"


@pytest.fixture(scope="module")
def replicated():
    with running(ReplicatedPostgres) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def galera():
    with running(Galera) as cluster:
        yield cluster


@pytest.fixture
def open_store():
    """Opens stores, which are closed at the end."""
    stores = []

    def open_one(url):
        stores.append(SQLStore(url, timeout=TIMEOUT_S))
        schema.upgrade(stores[-1].database)
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


def save_in_the_end(store, name, tries=60):
    """Save a letter as a worker does: again until the store accepts it."""
    for _ in range(tries - 1):
        try:
            return store.letters.save([letter(name)])
        except StoreUnavailable:
            continue
    return store.letters.save([letter(name)])


def save_many(store):
    """Save letters, because open sessions see a change of the server's settings a little later."""
    for number in range(1_000):
        store.letters.save([letter(f"meanwhile{number}")])


def test_an_asynchronous_standby_lacks_only_what_it_had_not_received(open_store):
    with running(AsynchronousPostgres) as cluster:
        store = open_store(cluster.url)
        names = [f"before{number}" for number in range(20)]
        store.letters.save([letter(name) for name in names])
        until("the letters to arrive", lambda: cluster.standby.ask(_COUNT) == len(names))
        cluster.part()
        store.letters.save([letter("confirmed, and lost")])
        cluster.kill()
        cluster.start()
        save_in_the_end(store, "after")
        found = store.letters.find(Filter(), limit=100).letters
        assert {one.task_id for one in found} == {*names, "after"}
        assert_counts_hold(store)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_the_promoted_standby_has_every_letter_and_takes_more(replicated, open_store, end):
    store = open_store(replicated.url)
    names = [f"{end}{number}" for number in range(20)]
    store.letters.save([letter(name) for name in names])
    before = replicated.promotions
    getattr(replicated, end)()
    with pytest.raises(StoreUnavailable, match="cannot be used"):
        store.letters.save([letter("while there is no primary")])
    replicated.start()
    assert replicated.promotions == before + 1
    save_in_the_end(store, "after")
    assert all(store.letters.get(name) for name in [*names, "after"])


def test_a_server_that_has_become_read_only_is_left(replicated, open_store):
    store = open_store(replicated.url)
    store.letters.save([letter("before")])
    replicated.primary.configure("default_transaction_read_only", "on")
    try:
        with pytest.raises(StoreError, match=r"is read-only .*all servers of which one does"):
            save_many(store)
    finally:
        replicated.primary.configure("default_transaction_read_only", "off")
    save_in_the_end(store, "afterwards")


def test_another_node_of_a_cluster_takes_over(galera, open_store):
    store = open_store(galera.url)
    store.letters.save([letter("before")])
    galera.kill()
    save_in_the_end(store, "meanwhile")
    galera.start()
    save_in_the_end(store, "after")
    for when in ("before", "meanwhile", "after"):
        assert store.letters.get(when).attempt_count == 1


def test_a_node_that_has_left_its_cluster_is_not_used(galera, open_store):
    store = open_store(galera.url)
    store.letters.save([letter("joined")])
    with galera.nodes[0].isolated():
        save_in_the_end(store, "without it")
        alone = SQLStore(galera.nodes[0].url, timeout=TIMEOUT_S)
        with pytest.raises(StoreUnavailable, match="cannot be used"):
            alone.check_schema()
        alone.close()
    galera.start()
    assert open_store(galera.nodes[0].url).letters.get("without it") is not None


def test_a_server_with_read_only_is_passed_over(galera, open_store):
    """As the replica of a MySQL server is."""
    first, second, _ = galera.nodes

    def port(store):
        return store.database.read(lambda connection: connection.scalar(text("SELECT @@port")))

    assert port(open_store(galera.url)) == first.port
    first.ask("SET GLOBAL read_only = ON")
    try:
        store = open_store(galera.url)
        assert port(store) == second.port
        assert store.database.read(store.database.dialect.why_read_only) == ""
    finally:
        first.ask("SET GLOBAL read_only = OFF")


def test_a_conflict_that_a_node_finds_at_the_commit_is_repeated(galera, open_store):
    """Locks hold on one node only. A repetition that comes before the node has the other one's change is in
    conflict again."""
    one, other = (open_store(galera.nodes[number].url) for number in (0, 1))
    one.letters.save([letter("wanted by both")])
    row = tables.letter.c.task_id == "wanted by both"
    notes = []

    def add(note):
        def work(connection):
            stored = connection.execute(
                select(tables.letter.c.evidence).where(row).with_for_update()
            ).scalar_one()
            notes.append(note)
            if notes == ["one"]:
                other.database.write(add("other"))
            connection.execute(
                update(tables.letter).where(row).values(evidence=f"{stored}, {note}")
            )

        return work

    one.database.write(add("one"))
    assert notes[:3] == ["one", "other", "one"]
    assert {*notes[3:]} <= {"one"}
    stored = one.database.read(lambda c: c.execute(select(tables.letter.c.evidence).where(row)))
    assert stored.scalar_one() == ", other, one"


def test_two_nodes_never_claim_the_same_letter(galera, open_store):
    """The lock of one node is unknown to the other, so both try for the same letters, and one is refused."""
    stores = [open_store(galera.nodes[number].url) for number in (0, 1)]
    names, later = [f"claimed{number}" for number in range(60)], T0 + timedelta(minutes=9)
    redrive = operation("one", wanted=Filter(ids=tuple(names)))
    stores[0].letters.save([letter(name) for name in names])
    stores[0].operations.create(redrive)
    start = Barrier(len(stores))

    def claim(number):
        found = []
        start.wait()
        for turn in range(1_000):
            with contextlib.suppress(StoreUnavailable):  # the other one has taken them each time
                taken = stores[number].claims.take(
                    redrive, token=f"{number} {turn}", lease_until=later, limit=3, now=T0
                )
                if not taken.letters:
                    break
                found += [item.task_id for item in taken.letters]
        return found

    with ThreadPoolExecutor() as threads:
        found = [name for names in threads.map(claim, range(len(stores))) for name in names]
    assert sorted(found) == sorted(names)
