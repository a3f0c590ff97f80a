"""The archive of an app."""

from __future__ import annotations

import pytest
from celery import Celery
from support.factories import attempt, letter
from support.stores.archives import FakeStore, archive_all, failing, lines

from celery_dlq import DeadLetterQueue, Filter
from celery_dlq.archive.bucket import open_bucket
from celery_dlq.archive.reading import Wanted
from celery_dlq.errors import ArchiveError, MissingExtra, SettingsError
from celery_dlq.model.states import CLOSED_STATES, State
from celery_dlq.worker import step


@pytest.fixture
def app(tmp_path):
    app = Celery("unit", broker="memory://", set_as_current=False)
    app.conf.dlq_store_url = f"sqlite:///{tmp_path}/store.sqlite3"
    return app


@pytest.fixture
def queue(app, tmp_path):
    app.conf.dlq_archive_url = f"file://{tmp_path}"
    return DeadLetterQueue.of(app)


def test_without_a_place_there_is_no_archive(app):
    with pytest.raises(SettingsError, match="dlq_archive_url is not set"):
        DeadLetterQueue.of(app).archive  # noqa: B018 - made on first use


def test_archived_letters_are_found_and_checked(queue):
    archive_all(open_bucket(queue.settings.archive_url), FakeStore(lines(3)))
    found = list(queue.archive.find(Wanted(ids=frozenset({"id-000002"}))))
    assert [one.task_id for one in found] == ["id-000002"]
    assert queue.archive.verify(who="ada").letters == 3


def test_a_check_is_reported_and_audited(queue, tmp_path):
    archive_all(open_bucket(queue.settings.archive_url), FakeStore(lines(3)), together=2)
    (tmp_path / "segments" / "notes.txt").touch()
    (damaged,) = (tmp_path / "segments").glob("*-00000002-*")
    damaged.write_bytes(b"x")
    queue.archive.verify(who="ada")
    check = queue.store.reports.keeping().check
    assert (check.segments, check.letters, check.damaged, check.harmless) == (1, 2, 1, 1)
    (act,) = queue.store.audit.find(act="verify").rows
    assert (act.who, act.count) == ("ada", 2)
    assert act.detail == {"segments": 1, "damaged": 1, "harmless": 1}


@pytest.fixture
def closed(queue):
    """The store of the app, with three closed letters."""
    queue.store.letters.save([letter(name, attempt()) for name in "abc"])
    queue.store.closing.discard(Filter(), who="ann", why="", now=queue.store.now())
    return queue.store


def move(queue, *ids, who):
    lease = queue.store.leases.take("retention", holder="me", seconds=60)
    return queue.archive.move(Filter(ids=ids, states=CLOSED_STATES), lease, who=who)


def test_moved_letters_are_counted_and_audited(queue, closed):
    assert move(queue, "a", "b", who="ada") == 2
    (act,) = closed.audit.find(act="archive").rows
    assert (act.who, act.count) == ("ada", 2)
    assert act.detail["filter"]["ids"] == ["a", "b"]


def test_letters_of_a_segment_that_another_process_has_begun_are_counted_and_audited(
    queue, closed, monkeypatch
):
    with monkeypatch.context() as patched:
        patched.setattr(closed.archiving, "delete", failing)
        with pytest.raises(ArchiveError):
            move(queue, "a", "b", who="ada")
    assert move(queue, "c", who="bob") == 3
    assert closed.letters.find(Filter(states=frozenset(State))).letters == ()
    assert [(act.who, act.count) for act in closed.audit.find(act="archive").rows] == [("bob", 3)]


def test_archived_letters_are_restored(queue):
    archive_all(open_bucket(queue.settings.archive_url), FakeStore(lines(3)))
    queue.store.archiving = FakeStore()
    search = queue.archive.find(Wanted())
    assert len(queue.archive.restore(search, who="ada").restored) == 3
    assert queue.store.archiving.audit[0][0] == "ada"


def test_a_worker_does_not_start_without_the_package_of_the_place(app, monkeypatch):
    app.conf.dlq_archive_url = "gs://letters"
    DeadLetterQueue.of(app)
    monkeypatch.setattr("celery_dlq.archive.bucket.find_spec", lambda name: name != "gcsfs" or None)
    with pytest.raises(MissingExtra, match="run: pip install gcsfs"):
        step._check(app)


def test_a_worker_without_an_archive_needs_no_package(app, monkeypatch):
    monkeypatch.setattr("celery_dlq.archive.bucket.find_spec", lambda _name: None)
    DeadLetterQueue.of(app).check_archive_url()
