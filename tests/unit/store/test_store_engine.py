from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import event, exc, text

from celery_dlq.errors import SettingsError, StoreError, StoreUnavailable
from celery_dlq.store import drivers
from celery_dlq.store.drivers import parse_url
from celery_dlq.store.engine import FIRST_PAUSE, MAX_TRIES, Database


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def database(tmp_path, pauses):
    database = Database(f"sqlite:///{tmp_path / 'a.sqlite3'}", timeout=0.2, sleep=pauses.append)
    yield database
    database.close()


@pytest.mark.parametrize(
    ("given", "driver"),
    [
        ("sqlite:///a.sqlite3", "sqlite"),
        ("sqlite+pysqlite:///a.sqlite3", "sqlite"),
        ("postgres://u@h/d", "postgresql+psycopg"),
        ("postgresql://u@h/d", "postgresql+psycopg"),
        ("postgresql+psycopg://u@h/d", "postgresql+psycopg"),
        ("mysql://u@h/d", "mysql+pymysql"),
        ("mysql+pymysql://u@h/d", "mysql+pymysql"),
        ("mariadb://u@h/d", "mysql+pymysql"),
        ("mariadb+pymysql://u@h/d", "mysql+pymysql"),
    ],
)
def test_common_ways_to_write_a_url_name_our_driver(given, driver):
    assert parse_url(given).drivername == driver


def test_a_password_survives_the_rewriting():
    assert parse_url("postgres://u:p%40ss@h/d").password == "p@ss"


@pytest.mark.parametrize(
    "scheme", ["oracle", "postgresql+psycopg2", "mysql+mysqldb", "sqlite+aiosqlite"]
)
def test_an_unsupported_database_is_named_with_those_that_are(scheme):
    with pytest.raises(SettingsError, match="not supported; use sqlite, postgresql") as caught:
        parse_url(f"{scheme}://user:hunter2@host/name")
    assert scheme in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "given", ["hunter2", "postgresql:/hunter2", "postgresql://u:hunter2@h:port/d"]
)
def test_what_is_no_url_is_refused_without_repeating_it(given):
    with pytest.raises(SettingsError, match="not a database URL; write it like") as caught:
        parse_url(given)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_part_of_a_password_is_not_taken_for_a_host():
    with pytest.raises(SettingsError, match="write it as %40") as caught:
        parse_url("postgresql://u:hunter2@x@h/d")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("given", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_in_memory_is_refused(given):
    with pytest.raises(SettingsError, match=r"in memory.*name a file"):
        parse_url(given)


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

    monkeypatch.setattr("celery_dlq.store.drivers.create_engine", refuse)
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


OPEN = (
    "import sys; from celery_dlq.store.sql import SQLStore\n"
    "sys.stdin.readline()\n"
    "SQLStore(sys.argv[1], timeout=30).check_schema()\n"
)


def test_several_processes_open_a_new_sqlite_file_at_once(tmp_path):
    """Each switches it to a write-ahead log, and makes the schema."""
    url = f"sqlite:///{tmp_path / 'new.sqlite3'}"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, url], stdin=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(4)
    ]
    for process in processes:
        process.stdin.write(b"go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=60)[1].decode() for process in processes]
    assert said == [""] * len(processes)


class Locked:
    """A driver's connection to a file that is locked for the first ``times``."""

    def __init__(self, times):
        self.times, self.asked = times, 0

    def execute(self, statement):
        self.asked += 1
        if self.asked <= self.times:
            raise sqlite3.OperationalError("database is locked")


def test_the_log_of_a_file_that_is_locked_is_set_as_soon_as_it_can_be():
    connection = Locked(times=3)
    drivers._set_wal(connection, seconds=60)
    assert connection.asked == 4


def test_the_log_of_a_file_that_stays_locked_is_given_up(tmp_path):
    path = tmp_path / "a.sqlite3"
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("CREATE TABLE t (x)")
    holder.execute("BEGIN EXCLUSIVE")
    database = Database(f"sqlite:///{path}", timeout=0.05)
    with pytest.raises(StoreUnavailable, match="locked"):
        database.read(lambda connection: connection.scalar(text("SELECT 1")))
    database.close()
    holder.close()


def test_a_new_file_has_large_pages_and_an_old_one_keeps_its_own(tmp_path, database):
    old = tmp_path / "old.sqlite3"
    connection = sqlite3.connect(old)
    connection.execute("PRAGMA page_size = 4096")
    connection.execute("CREATE TABLE kept (id)")
    connection.close()
    before = Database(f"sqlite:///{old}")
    try:
        for of, size in ((database, 8_192), (before, 4_096)):
            of.write(lambda connection: connection.execute(text("CREATE TABLE new (id)")))
            pages = of.read(lambda connection: connection.scalar(text("PRAGMA page_size")))
            assert pages == size
    finally:
        before.close()


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
