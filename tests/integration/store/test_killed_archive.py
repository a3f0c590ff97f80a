"""Letters on their way into the archive are in one place, though the process that moves them is killed."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import fsspec
import pytest
from support.factories import T0, attempt, letter
from support.servers.databases import mysql_database, postgres_database
from support.stores.archives import s3_environment, s3_server
from support.workers.processes import with_parent

from celery_dlq import Filter
from celery_dlq.archive.archiving import Archive
from celery_dlq.archive.bucket import open_bucket
from celery_dlq.archive.reading import Wanted
from celery_dlq.model.states import State
from celery_dlq.store.database import schema
from celery_dlq.store.sql import SQLStore

#: `make kills` sets more.
KILLS = int(os.environ.get("CELERY_DLQ_ARCHIVE_KILLS", "12"))
LETTERS = int(os.environ.get("CELERY_DLQ_ARCHIVE_LETTERS", "300"))
#: Of one segment, so that there are more segments than kills.
TOGETHER = max(1, LETTERS // (6 * KILLS))
#: The longest time for which a process lives after it has begun, in seconds, at first.
LONGEST_LIFE_S = 0.5

pytestmark = [
    pytest.mark.slow, pytest.mark.nightly, pytest.mark.service, pytest.mark.timeout(600 + 20 * KILLS),
]  # fmt: skip

PROGRAM = Path(__file__).with_name("archive_rounds.py")
EVERY = Filter(states=frozenset(State))
LONG_AGO = T0 - timedelta(days=100)


@contextlib.contextmanager
def file_place(tmp_path, _monkeypatch):
    (tmp_path / "letters").mkdir()
    yield f"file://{tmp_path / 'letters'}"


@contextlib.contextmanager
def s3_place(_tmp_path, monkeypatch):
    with s3_server() as address:
        for name, value in s3_environment(address).items():
            monkeypatch.setenv(name, value)
        fsspec.filesystem("s3", skip_instance_cache=True).mkdir("letters")
        yield "s3://letters/shop"


def closed_letters(store, count):
    """Store letters that were closed long ago; returns their ids."""
    ids = [f"letter-{number:06}" for number in range(count)]
    for first in range(0, count, 1_000):
        store.letters.save(
            [letter(one, attempt(failed_at=LONG_AGO)) for one in ids[first : first + 1_000]]
        )
    store.closing.discard(Filter(), who="ann", why="", now=LONG_AGO + timedelta(days=1))
    return ids


def start(store_url, place):
    command = [sys.executable, str(PROGRAM), store_url, place]
    environment = {**os.environ, "SEGMENT_LETTERS": str(TOGETHER)}
    return subprocess.Popen(
        with_parent(command), env=environment, stdout=subprocess.PIPE, text=True
    )


def in_store(store):
    pages, after = [], None
    while True:
        page = store.letters.find(EVERY, limit=1_000, after=after)
        pages += [one.task_id for one in page.letters]
        after = page.next
        if after is None:
            return pages


def in_archive(archive):
    return [found.line["letter"]["task_id"] for found in archive.find(Wanted())]


@pytest.mark.parametrize(
    ("place", "database"),
    [(file_place, postgres_database), (s3_place, mysql_database)],
    ids=["file-postgres", "s3-mysql"],
)
def test_each_letter_is_in_one_place_however_often_the_process_is_killed(
    place, database, tmp_path, monkeypatch
):
    chance = random.Random(KILLS)
    with place(tmp_path, monkeypatch) as url, database() as store_url:
        store = SQLStore(store_url, timeout=60)
        schema.upgrade(store.database)
        archive = Archive(open_bucket(url), lambda: store)
        ids = closed_letters(store, LETTERS)
        killed, longest_s = 0, LONGEST_LIFE_S
        while killed < KILLS:
            process = start(store_url, url)
            with process:
                assert process.stdout.readline() == "begun\n"
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(chance.uniform(0, longest_s))
                killed += process.poll() is None
                process.kill()
            left = in_store(store)
            assert {*left, *in_archive(archive)} == {*ids}
            if not left:
                break
            # On a fast machine, processes must die sooner, or there are no letters for the last kills.
            is_ahead = len(left) / LETTERS < 1 - killed / KILLS
            longest_s = min(LONGEST_LIFE_S, longest_s * (0.5 if is_ahead else 1.25))
        with start(store_url, url) as process:
            assert process.communicate()[0] == "begun\nended\n"
        assert in_store(store) == []
        assert sorted(in_archive(archive)) == ids
        assert (
            sum(act.count for act in store.audit.find(act="archive", limit=1_000).rows) == LETTERS
        )
        assert archive.verify(who="ann").findings == ()
        assert killed == KILLS, "there were too few letters for this many kills"
        store.close()


def test_letters_come_back_into_another_kind_of_store_and_are_redriven(
    make_project, redis_url, postgres_url, tmp_path
):
    project = make_project(redis_url, postgres_url)
    with project.worker():
        ids = [project.send("terminal", number) for number in range(5)]
        for task_id in ids:
            project.wait_for_letter(task_id)
    store = project.dlq.store
    store.closing.discard(Filter(ids=tuple(ids)), who="ann", why="", now=store.now())
    place = tmp_path / "letters"
    place.mkdir()
    archive = Archive(open_bucket(f"file://{place}"), lambda: store)
    lease = store.leases.take("retention", holder="me", seconds=60)
    assert (
        archive.move(Filter(ids=tuple(ids), states=frozenset({State.DISCARDED})), lease, who="me")
        == 5
    )
    assert [store.letters.get(task_id) for task_id in ids] == [None] * 5

    moved = replace(project, store_url=f"sqlite:///{tmp_path / 'new.sqlite3'}", nodes=[], sent=[])
    found = Archive(archive.bucket, lambda: moved.dlq.store)
    assert len(found.adopt()) == 1
    assert sorted(found.restore(found.find(Wanted()), who="ann", reopen=True).restored) == sorted(
        ids
    )
    moved.fixed.touch()
    with moved.worker():
        assert moved.dlq.redrives.start(Filter(queue=moved.queue), who="ann").counts.out == 5
        for task_id in ids:
            moved.wait_for_letter(task_id, State.RESOLVED)
    moved.dlq.store.close()
