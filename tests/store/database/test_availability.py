"""Forks, and databases that are away, slow, locked or read-only."""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading
import traceback

import pytest
from sqlalchemy import text
from support.factories import letter

from celery_dlq.errors import StoreError, StoreUnavailable
from celery_dlq.settings import Settings
from celery_dlq.store.base import Filter
from celery_dlq.store.sql import SQLStore

pytestmark = pytest.mark.on_servers


def in_child(work) -> None:
    """Run ``work`` in a forked process, and fail as it fails."""

    def run(pipe):
        try:
            work()
            pipe.send("")
        except BaseException:
            pipe.send(traceback.format_exc())

    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=run, args=(theirs,))
    child.start()
    child.join(timeout=30)
    assert child.exitcode == 0
    assert ours.recv() == ""
    ours.close()
    theirs.close()


def session_of(store: SQLStore) -> object:
    """The id of a connection to the server."""
    question = {
        "postgresql": "SELECT pg_backend_pid()",
        "mysql": "SELECT CONNECTION_ID()",
    }[store.database.dialect.name]
    return store.database.read(lambda connection: connection.scalar(text(question)))


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_connects_for_itself(store):
    store.letters.save([letter("parent")])
    inherited = store.database.engine

    def child():
        assert store.letters.get("parent") is not None
        assert store.letters.save([letter("child")]).arrived == 1
        assert store.database.engine is not inherited

    in_child(child)
    assert store.letters.get("child") is not None
    assert store.database.engine is inherited


@pytest.mark.not_through("pgbouncer", reason="PgBouncer gives a client no session of its own")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_leaves_its_parents_connection_alone(store):
    if store.database.dialect.name == "sqlite":
        pytest.skip("SQLite has no sessions")
    own = SQLStore(store.database.url.render_as_string(hide_password=False))
    mine = session_of(own)

    def child():
        assert session_of(own) != mine
        own.close()

    in_child(child)
    assert session_of(own) == mine
    own.close()


def test_a_closed_store_opens_again(store):
    store.letters.save([letter()])
    store.close()
    store.close()
    assert store.letters.get("0d3f") is not None


def test_a_store_is_made_from_settings(tmp_path):
    url = f"sqlite:///{tmp_path / 'dlq.sqlite3'}"
    store = SQLStore.from_settings(Settings.from_values({"store_url": url, "store_timeout": 2.5}))
    assert store.database.timeout == 2.5
    assert store.letters.save([letter()]).arrived == 1
    store.close()


def test_a_store_does_not_show_its_password():
    store = SQLStore("postgresql://dlq:hunter2@db/shop")
    assert repr(store) == "<SQLStore postgresql+psycopg://dlq:***@db/shop>"


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_server_that_is_not_there(scheme):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"{scheme}://dlq:hunter2@127.0.0.1:{free.getsockname()[1]}/shop"
        store = SQLStore(url, timeout=2)
        with pytest.raises(StoreUnavailable, match="and that the database is up") as caught:
            store.letters.save([letter()])
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_server_that_accepts_and_says_nothing(scheme):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = SQLStore(f"{scheme}://dlq@127.0.0.1:{silent.getsockname()[1]}/shop", timeout=0.3)
        with pytest.raises(StoreUnavailable):
            store.counts.letters(Filter())


def test_a_wrong_database_name(database_url, session_store):
    if session_store.database.dialect.name == "sqlite":
        pytest.skip("SQLite makes the file")
    server, _, name = database_url.rpartition("/")
    with pytest.raises(StoreUnavailable, match=f"{name}x"):
        SQLStore(f"{server}/{name}x").counts.letters(Filter())


def test_a_lock_that_is_held_too_long_is_not_waited_for(store):
    store.letters.save([letter()])
    impatient = SQLStore(store.database.url.render_as_string(hide_password=False), timeout=0.3)
    with store.database.engine.connect() as holder:
        if store.database.dialect.name == "sqlite":
            holder.exec_driver_sql("ROLLBACK")
            holder.exec_driver_sql("BEGIN IMMEDIATE")
        holder.execute(text("UPDATE celery_dead_letter SET message = 'held'"))
        with pytest.raises(StoreUnavailable):
            impatient.letters.save([letter()])
    impatient.close()
    assert store.letters.save([letter()]).known == 1


def test_a_connection_that_the_server_closed_is_replaced(store):
    if store.database.dialect.name == "sqlite":
        pytest.skip("SQLite has no server")
    other = SQLStore(store.database.url.render_as_string(hide_password=False))

    def end_it(connection):
        # Even behind PgBouncer, the other one's session is not the one of this transaction.
        session = session_of(other)
        kill = {"postgresql": f"SELECT pg_terminate_backend({session})", "mysql": f"KILL {session}"}
        connection.execute(text(kill[store.database.dialect.name]))

    store.database.write(end_it)
    assert other.letters.save([letter()]).arrived == 1
    other.close()


def test_a_read_only_file_is_read_and_says_how_to_make_it_writable(sqlite_store):
    sqlite_store.letters.save([letter()])
    path = sqlite_store.database.url.database
    store = SQLStore(f"sqlite:///file:{path}?mode=ro&uri=true")
    assert store.letters.get("0d3f") is not None
    with pytest.raises(StoreError, match="make the file and its directory writable"):
        store.letters.save([letter("9c1e")])
    store.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_may_not_be_written_to(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="check that its directory exists and is writable"):
        SQLStore(f"sqlite:///{tmp_path / 'dlq.sqlite3'}").letters.save([letter()])


def test_a_directory_in_the_place_of_the_file(tmp_path):
    with pytest.raises(StoreError, match="check that its directory exists and is writable"):
        SQLStore(f"sqlite:///{tmp_path}").counts.letters(Filter())


def test_threads_share_a_store(store):
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(store.letters.save([letter(f"{n}")])))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(found) == store.counts.letters(Filter()) == 8
