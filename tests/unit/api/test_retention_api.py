"""The archive of an app; which letters are deleted, and what open ones need."""

from __future__ import annotations

import pytest
from celery import Celery
from support.factories import T0, attempt, letter
from support.stores.archives import FakeStore, archive_all, failing, lines, segment_id

from celery_dlq import DeadLetterQueue, Filter
from celery_dlq.api.retention import check_reason, deletable
from celery_dlq.archive.bucket import open_bucket
from celery_dlq.archive.reading import Wanted
from celery_dlq.errors import ArchiveError, DeletionError, MissingExtra, OpenLetters, SettingsError
from celery_dlq.model.states import CLOSED_STATES, State
from celery_dlq.worker import consumer as module


@pytest.fixture
def app(tmp_path):
    app = Celery("unit", broker="memory://", set_as_current=False)
    app.conf.dlq_store_url = f"sqlite:///{tmp_path}/store.sqlite3"
    yield app
    # A connection that is left to the garbage collector is a warning in Python 3.13 and later.
    DeadLetterQueue.of(app).store.close()


@pytest.fixture
def archiving(app, tmp_path):
    app.conf.dlq_archive_url = f"file://{tmp_path}"
    return DeadLetterQueue.of(app)


def test_without_a_place_there_is_no_archive(app):
    with pytest.raises(SettingsError, match="dlq_archive_url is not set"):
        DeadLetterQueue.of(app).archive  # noqa: B018 - made on first use


def test_archived_letters_are_found_and_checked(archiving):
    archive_all(open_bucket(archiving.settings.archive_url), FakeStore(lines(3)))
    assert archiving.archive.adopt() == [segment_id(1)]
    found = list(archiving.archive.find(Wanted(ids=frozenset({"id-000002"}))))
    assert [one.task_id for one in found] == ["id-000002"]
    assert archiving.archive.verify(who="ada").letters == 3


def test_a_check_is_reported_and_audited(archiving, tmp_path):
    archive_all(open_bucket(archiving.settings.archive_url), FakeStore(lines(3)), together=2)
    archiving.archive.adopt()
    (tmp_path / "segments" / "notes.txt").touch()
    (damaged,) = (tmp_path / "segments").glob("*-00000002.jsonl.zst")
    damaged.write_bytes(b"x")
    archiving.archive.verify(who="ada")
    check = archiving.store.reports.keeping().check
    assert (check.segments, check.letters, check.damaged, check.harmless) == (1, 2, 1, 1)
    (act,) = archiving.store.audit.find(act="verify").rows
    assert (act.who, act.count) == ("ada", 2)
    assert act.detail == {"segments": 1, "damaged": 1, "harmless": 1}


@pytest.fixture
def closed(archiving):
    """The store of the app, with three closed letters."""
    archiving.store.letters.save([letter(name, attempt()) for name in "abc"])
    archiving.store.closing.discard(Filter(), who="ann", why="", now=archiving.store.now())
    return archiving.store


def move(archiving, *ids, who):
    lease = archiving.store.leases.take("retention", holder="me", seconds=60)
    return archiving.archive.move(Filter(ids=ids, states=CLOSED_STATES), lease, who=who)


def test_moved_letters_are_counted_and_audited(archiving, closed):
    assert move(archiving, "a", "b", who="ada") == 2
    (act,) = closed.audit.find(act="archive").rows
    assert (act.who, act.count) == ("ada", 2)
    assert act.detail["filter"]["ids"] == ["a", "b"]


def test_a_segment_that_another_process_has_begun_is_cleaned_up(archiving, closed, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(closed.archiving, "commit", failing)
        with pytest.raises(ArchiveError):
            move(archiving, "a", "b", who="ada")
    assert move(archiving, "c", who="bob") == 1
    assert [one.letters for one in closed.archiving.segments()] == [1]
    assert archiving.archive.verify(who="ann").findings == ()


def test_archived_letters_are_restored(archiving):
    archive_all(open_bucket(archiving.settings.archive_url), FakeStore(lines(3)))
    archiving.store.archiving = FakeStore()
    archiving.archive.adopt()
    search = archiving.archive.find(Wanted())
    assert len(archiving.archive.restore(search, who="ada").restored) == 3
    assert archiving.store.archiving.audit[0][0] == "ada"


def test_a_worker_does_not_start_without_the_package_of_the_place(app, monkeypatch):
    app.conf.dlq_archive_url = "gs://letters"
    DeadLetterQueue.of(app)
    monkeypatch.setattr("celery_dlq.archive.bucket.find_spec", lambda name: name != "gcsfs" or None)
    with pytest.raises(MissingExtra, match="run: pip install gcsfs"):
        module._check(app)


def test_a_worker_without_an_archive_needs_no_package(app, monkeypatch):
    monkeypatch.setattr("celery_dlq.archive.bucket.find_spec", lambda _name: None)
    DeadLetterQueue.of(app).check_archive_url()


def of(*states, **fields):
    return Filter(states=frozenset(states), **fields)


@pytest.mark.parametrize(
    ("states", "is_open", "taken"),
    [
        ((), False, CLOSED_STATES),
        ((State.DISCARDED,), False, {State.DISCARDED}),
        ((State.RESOLVED, State.DISCARDED), False, CLOSED_STATES),
        ((), True, {State.DEAD}),
        ((State.REDRIVEN,), True, {State.REDRIVEN}),
        ((State.DEAD, State.REDRIVEN), True, {State.DEAD, State.REDRIVEN}),
    ],
)
def test_the_states_of_the_letters_to_delete(states, is_open, taken):
    found = deletable(of(*states, task="charge"), is_open=is_open)
    assert found == of(*taken, task="charge")


@pytest.mark.parametrize(
    ("states", "is_open", "error", "said"),
    [
        ((State.DEAD,), False, OpenLetters, "Letters that are dead are open"),
        ((State.REDRIVEN, State.DEAD), False, OpenLetters, "are dead and redriven are open"),
        ((State.DEAD, State.RESOLVED), False, OpenLetters, "are dead are open; delete them apart"),
        ((State.DEAD, State.RESOLVED), True, DeletionError, "are resolved are closed; delete"),
        ((State.CLAIMED,), True, DeletionError, "that are claimed cannot be deleted"),
        ((State.CLAIMED,), False, DeletionError, "that are claimed cannot be deleted"),
        ((State.PARKED, State.DEAD), True, DeletionError, "that are parked cannot be deleted"),
    ],
)
def test_other_states_are_refused(states, is_open, error, said):
    with pytest.raises(DeletionError, match=said) as caught:
        deletable(of(*states), is_open=is_open)
    assert type(caught.value) is error


@pytest.mark.parametrize("why", ["", "  "])
def test_only_open_letters_need_a_reason(why):
    check_reason(why, is_open=False)
    check_reason("test data", is_open=True)
    with pytest.raises(OpenLetters, match="needs a reason"):
        check_reason(why, is_open=True)


@pytest.fixture
def queue(shop_app):
    """The queue of an app with one closed letter and one that is dead."""
    queue = DeadLetterQueue.of(shop_app)
    queue.store.letters.save([letter("closed"), letter("dead")])
    queue.store.closing.discard(Filter(ids=("closed",)), who="bob", why="", now=T0)
    return queue


def left(queue):
    found = queue.store.letters.find(Filter(states=frozenset(State))).letters
    return sorted(one.task_id for one in found)


def test_python_deletes_closed_letters(queue):
    assert queue.delete(Filter(task="charge"), who="ann") == 1
    assert left(queue) == ["dead"]
    [act] = queue.store.audit.find(act="delete").rows
    assert (act.who, act.count, act.why) == ("ann", 1, "")


def test_python_deletes_open_letters_on_request_and_with_a_reason(queue):
    with pytest.raises(OpenLetters, match="needs a reason"):
        queue.delete(Filter(ids=("dead",)), who="ann", is_open=True)
    assert queue.delete(Filter(ids=("dead",)), who="ann") == 0
    assert left(queue) == ["closed", "dead"]
    assert queue.delete(Filter(ids=("dead",)), who="ann", why="test data", is_open=True) == 1
    assert left(queue) == ["closed"]
