from __future__ import annotations

import os
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import event, exc, text
from support.servers.ports import free_port

from celery_dlq.errors import StoreError, StoreUnavailable
from celery_dlq.store.database.engine import FIRST_PAUSE, MAX_TRIES, Database

PATIENCE_S = 60


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def database(tmp_path, pauses):
    database = Database(f"sqlite:///{tmp_path / 'a.sqlite3'}", timeout=0.2, sleep=pauses.append)
    yield database
    database.close()


def test_nothing_is_opened_before_the_first_use(tmp_path):
    path = tmp_path / "a.sqlite3"
    database = Database(f"sqlite:///{path}")
    assert not path.exists()
    assert database.read(lambda connection: connection.scalar(text("SELECT 1"))) == 1
    database.close()


def test_a_missing_directory_is_named(tmp_path):
    database = Database(f"sqlite:///{tmp_path / 'missing' / 'a.sqlite3'}")
    with pytest.raises(StoreError, match=r"missing' of dlq_store_url does not exist; create it"):
        database.read(lambda connection: None)


@pytest.mark.parametrize(
    ("url", "extra"), [("postgresql://h/d", "postgres"), ("mysql://h/d", "mysql")]
)
def test_a_missing_driver_names_the_extra(url, extra, monkeypatch):
    def refuse(*args, **options):
        raise ImportError("No module named 'psycopg'")

    monkeypatch.setattr("celery_dlq.store.database.dialects.dialect.create_engine", refuse)
    with pytest.raises(StoreError, match=rf"pip install 'celery-dlq\[{extra}\]'"):
        Database(url).read(lambda connection: None)


def conflict() -> exc.DBAPIError:
    return exc.IntegrityError("INSERT", {}, sqlite3.IntegrityError("UNIQUE constraint failed"))


def test_a_transaction_is_repeated_whole_when_another_writer_was_in_the_way(database, pauses):
    database.write(lambda connection: connection.execute(text("CREATE TABLE t (n INTEGER)")))
    tries = iter([conflict(), conflict(), None])

    def work(connection):
        connection.execute(text("INSERT INTO t VALUES (1)"))
        error = next(tries)
        if error:
            raise error
        return "done"

    assert database.write(work) == "done"
    assert database.read(lambda connection: connection.scalar(text("SELECT count(*) FROM t"))) == 1
    assert [pause <= FIRST_PAUSE * 2**number for number, pause in enumerate(pauses)] == [True, True]


def test_repetition_ends(database, pauses):
    tries = []

    def work(connection):
        tries.append(1)
        raise conflict()

    with pytest.raises(StoreError, match="UNIQUE constraint failed"):
        database.write(work)
    assert len(tries) == MAX_TRIES
    assert len(pauses) == MAX_TRIES - 1


def test_other_errors_are_not_repeated(database, pauses):
    with pytest.raises(StoreError, match="no such table"):
        database.write(
            lambda connection: connection.execute(text("INSERT INTO missing VALUES (1)"))
        )
    assert pauses == []


def test_an_error_of_the_work_itself_passes_through_and_rolls_back(database):
    database.write(lambda connection: connection.execute(text("CREATE TABLE t (n INTEGER)")))

    def work(connection):
        connection.execute(text("INSERT INTO t VALUES (1)"))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        database.write(work)
    assert database.read(lambda connection: connection.scalar(text("SELECT count(*) FROM t"))) == 0


def test_a_locked_file_is_unavailable_not_waited_for_forever(database, tmp_path):
    database.write(lambda connection: connection.execute(text("CREATE TABLE t (n INTEGER)")))
    other = sqlite3.connect(tmp_path / "a.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StoreUnavailable, match=r"locked by another process.*try again"):
            database.write(lambda connection: connection.execute(text("INSERT INTO t VALUES (1)")))
    finally:
        other.close()


def test_a_file_that_is_no_database_is_named(tmp_path):
    (tmp_path / "a.sqlite3").write_text(
        "no database at all, but long enough to be looked into\n" * 99
    )
    database = Database(f"sqlite:///{tmp_path / 'a.sqlite3'}")
    with pytest.raises(StoreError, match=r"file is not a database.*set dlq_store_url"):
        database.read(lambda connection: connection.execute(text("SELECT * FROM sqlite_master")))
    database.close()


def test_each_process_has_its_own_engine_and_leaves_the_others_alone(database, monkeypatch):
    mine = database.engine
    assert database.engine is mine
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert database.engine is not mine
    database.close()
    monkeypatch.undo()
    assert database.engine is mine


def test_threads_write_to_a_file_one_after_the_other_and_none_looks_for_its_turn(tmp_path, pauses):
    # Who finds the file locked gives up at once: so SQLite itself never has two writers here.
    database = Database(f"sqlite:///{tmp_path / 'a.sqlite3'}", timeout=30, sleep=pauses.append)
    database.write(lambda connection: connection.execute(text("CREATE TABLE a (b INTEGER)")))

    @event.listens_for(database.engine, "connect")
    def give_up_at_once(connection, _record):
        connection.execute("PRAGMA busy_timeout = 0")

    database.engine.dispose()
    met = threading.Barrier(4)

    def write(number):
        met.wait(30)
        for _ in range(20):
            database.write(lambda connection: connection.execute(_ADD, {"b": number}))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    found = database.read(lambda connection: connection.scalar(text("SELECT COUNT(*) FROM a")))
    database.close()
    assert (found, pauses) == (80, [])


_ADD = text("INSERT INTO a VALUES (:b)")


def test_a_writer_that_gets_no_turn_in_time_is_told_that_the_file_is_locked(database):
    started, done = threading.Event(), threading.Event()

    def hold(_connection):
        started.set()
        assert done.wait(30)

    with ThreadPoolExecutor(1) as pool:
        holder = pool.submit(database.write, hold)
        assert started.wait(30)
        with pytest.raises(StoreUnavailable, match="locked"):
            database.write(lambda connection: None)
        done.set()
        holder.result()
    assert database.write(lambda connection: 1) == 1


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_refused_connection_fails_at_once_and_is_not_tried_again(scheme, pauses):
    url = f"{scheme}://root@127.0.0.1:{free_port()}/none"
    database = Database(url, timeout=PATIENCE_S, sleep=pauses.append)
    for use in (database.read, database.write):
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"cannot be used \(.*[Rr]efused"):
            use(lambda connection: connection.execute(text("SELECT 1")))
        assert time.monotonic() - began < PATIENCE_S / 2
    assert pauses == []


def test_a_url_of_several_addresses_of_which_all_refuse_fails_at_once_too():
    hosts = ",".join(f"127.0.0.1:{free_port()}" for _ in range(2))
    database = Database(f"postgresql://root@/none?host={hosts}", timeout=PATIENCE_S)
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="cannot be used"):
        database.read(lambda connection: connection.execute(text("SELECT 1")))
    assert time.monotonic() - began < PATIENCE_S / 2
