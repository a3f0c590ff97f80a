"""A file of SQLite's: opened by several processes at once, and private."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys

import pytest
from sqlalchemy import text

from celery_dlq.errors import StoreError, StoreUnavailable
from celery_dlq.store.database.dialects.sqlite import set_wal
from celery_dlq.store.database.engine import Database

OPEN = (
    "import sys; from celery_dlq.store.sql import SQLStore\n"
    "sys.stdin.readline()\n"
    "SQLStore(sys.argv[1], timeout=30).check_schema()\n"
)


@pytest.mark.slow
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
    set_wal(connection, seconds=60)
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


def test_a_new_file_has_large_pages_and_an_old_one_keeps_its_own(tmp_path):
    old = tmp_path / "old.sqlite3"
    connection = sqlite3.connect(old)
    connection.execute("PRAGMA page_size = 4096")
    connection.execute("CREATE TABLE kept (id)")
    connection.close()
    for path, size in ((tmp_path / "new.sqlite3", 8_192), (old, 4_096)):
        database = Database(f"sqlite:///{path}")
        database.write(lambda connection: connection.execute(text("CREATE TABLE new (id)")))
        pages = database.read(lambda connection: connection.scalar(text("PRAGMA page_size")))
        database.close()
        assert pages == size


# -- who may read an SQLite file -------------------------------------------------------------------


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def write(url):
    database = Database(url)
    database.write(lambda connection: connection.execute(text("CREATE TABLE a (b INTEGER)")))
    return database


def modes(directory):
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}


@pytest.mark.parametrize("url", ["sqlite:///{}/a.db", "sqlite:///file:{}/a.db?uri=true"])
def test_a_new_file_and_those_beside_it_are_for_their_owner_only(tmp_path, umask, url):
    database = write(url.format(tmp_path))
    assert modes(tmp_path) == dict.fromkeys(("a.db", "a.db-wal", "a.db-shm"), 0o600)
    database.close()


def test_a_file_that_is_there_keeps_its_mode(tmp_path, umask):
    (tmp_path / "a.db").touch()
    (tmp_path / "a.db").chmod(0o640)
    database = write(f"sqlite:///{tmp_path}/a.db")
    assert modes(tmp_path)["a.db"] == 0o640
    database.close()


def test_a_url_that_makes_no_file_makes_none(tmp_path):
    with pytest.raises(StoreError):
        write(f"sqlite:///file:{tmp_path}/a.db?mode=rw&uri=true")
    assert not modes(tmp_path)
