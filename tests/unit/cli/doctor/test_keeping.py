"""The doctor about retention and the archive."""

import shutil
from datetime import timedelta

import pytest
from support.factories import attempt, letter
from support.stores.archives import failing

from celery_dlq import Filter, Keep, Retention
from celery_dlq.archive.bucket import Bucket
from celery_dlq.model.states import CLOSED_STATES


@pytest.fixture
def found(run):
    """Gives the lines of one check, each a level and a text."""

    def found(check):
        lines = [line.split(maxsplit=2) for line in run("doctor").stdout.splitlines()[1:]]
        return [(level, text) for name, level, text in lines if name == check]

    return found


@pytest.fixture
def place(app, tmp_path):
    """The directory of the archive."""
    place = tmp_path / "letters"
    place.mkdir()
    app.conf.dlq_archive_url = f"file://{place}"
    return place


@pytest.fixture
def kept(app):
    app.conf.dlq_retention = Retention(letters=[Keep(timedelta(days=30))])


def test_an_app_without_them_gets_no_line(found):
    assert found("retention") == found("archive") == []


def closed(store, days):
    """Store a letter that was closed this many days ago."""
    at = store.now() - timedelta(days=days)
    store.letters.save([letter("a1", attempt(failed_at=at))])
    store.closing.discard(Filter(), who="ann", why="", now=at)


def test_letters_that_expired_lately_are_fine(kept, store, found):
    closed(store, 30.05)
    assert found("retention") == [
        ("ok", "1 entry; see how long each keeps letters: celery dlq retention plan")
    ]


def test_letters_that_should_be_gone_are_a_warning(kept, store, found):
    closed(store, 30.5)
    [(level, text)] = found("retention")
    assert level == "warning"
    assert "letters that expired more than 3 hours ago are still there; look for errors" in text
    assert text.endswith("or run: celery dlq retention run")


def test_an_archive_that_works_is_left_as_it_was(place, store, found):
    assert found("archive") == [("ok", f"file://{place} answers, 0 segments with 0 letters (0 B)")]
    assert list(place.iterdir()) == []


def test_an_archive_whose_place_was_emptied_is_an_error(place, queue, store, found):
    closed(store, 1)
    lease = store.leases.take("retention", holder="me", seconds=600)
    assert queue.archive.move(Filter(states=CLOSED_STATES), lease, who="ann") == 1
    assert found("archive")[0][0] == "ok"
    segment = store.archiving.newest()
    shutil.rmtree(place)
    place.mkdir()
    [(level, text)] = found("archive")
    assert level == "error"
    assert (
        f"does not have segments/{segment}.jsonl.zst, which was archived last. Mount its disk"
        in text
    )


def test_an_archive_that_is_away_is_an_error(place, store, found):
    place.rmdir()
    [(level, text)] = found("archive")
    assert level == "error"
    assert f"The archive file://{place} does not exist; make that directory" in text


def test_an_archive_that_returns_other_bytes_is_an_error(place, store, found, monkeypatch):
    monkeypatch.setattr(Bucket, "read", lambda _bucket, _key: b"other")
    [(level, text)] = found("archive")
    assert (level, "returns other bytes than were written to it" in text) == ("error", True)
    assert list(place.iterdir()) == []


def test_an_archive_that_cannot_be_written_is_an_error(place, store, found, monkeypatch):
    monkeypatch.setattr(Bucket, "put", failing)
    assert found("archive") == [("error", "The archive is away.")]


def test_an_archive_in_the_spool_is_an_error(app, place, found):
    app.conf.dlq_spool_dir = str(place.parent)
    levels = [level for level, text in found("archive") if "share a directory" in text]
    assert levels == ["error"]
