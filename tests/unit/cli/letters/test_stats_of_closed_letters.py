"""``dlq stats`` about closed letters and the archive."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.factories import attempt, letter
from support.stores.archives import FakeStore, archive_all, lines

from celery_dlq import Filter, Keep, Retention
from celery_dlq.archive.bucket import open_bucket
from celery_dlq.view.text import byte_size

DAY = timedelta(days=1)


@pytest.fixture
def configured(app):
    app.conf.dlq_retention = Retention(letters=[Keep(30 * DAY, where=Filter(task="shop.mail"))])


@pytest.fixture
def closed(configured, store, run):
    """Two letters that a round has left. One of them expires in half a day; the other one never does."""
    for name, task, days in (
        ("a1", "shop.mail", 29.5),
        ("b1", "shop.charge", 3),
        ("c1", "shop.mail", 31),
    ):
        at = store.now() - timedelta(days=days)
        store.letters.save([letter(name, attempt(failed_at=at), task=task)])
        store.closing.discard(Filter(ids=(name,)), who="ann", why="", now=at)
    assert run("retention", "run").exit_code == 0
    return store


@pytest.fixture
def place(app, tmp_path):
    """Set before the store reads the settings."""
    app.conf.dlq_archive_url = f"file://{tmp_path / 'archive'}"
    (tmp_path / "archive").mkdir()
    return app.conf.dlq_archive_url


@pytest.fixture
def archived(place, run, store):
    """A whole archive that was checked."""
    archive_all(open_bucket(place), FakeStore(lines(3)))
    for command in ("adopt", "verify"):
        assert run("archive", command).exit_code == 0
    return store.archiving.totals()


def test_before_the_first_round_nothing_is_said(run, read, store):
    found = read("stats")
    assert found["retention"] is None
    assert found["archive"]["segments"] == 0
    assert found["archive"]["verified_at"] is None
    out = run("stats").stdout
    assert "Retention" not in out
    assert "Archive" not in out


def test_the_numbers_are_those_of_the_last_round(read, closed):
    found = read("stats")["retention"]
    assert (found["removed"], found["letters"]) == (1, 2)
    assert (found["within_day"], found["within_week"], found["lag_s"]) == (1, 1, 0)
    assert found["next_expires_at"] == (closed.now() + DAY / 2).isoformat()
    assert [one["letters"] for one in found["ages"]] == [0, 1, 1, 0, 0, 0]
    assert sum(one["bytes"] for one in found["ages"]) == found["bytes"] > 0
    mail, others = found["entries"]
    assert (mail["filter"], mail["letters"], mail["within_day"]) == ({"task": "shop.mail"}, 1, 1)
    assert (others["filter"], others["keep_s"], others["letters"]) == (None, None, 1)


def test_the_screen_shows_what_is_kept_and_what_goes(run, closed):
    out = run("stats").stdout
    assert "Removed           1 letter\n" in out
    assert "Expire in a week  1 letter\n" in out
    assert "under 7d" in out
    assert "under 90d" not in out
    assert "Overdue" not in out


def test_a_letter_that_should_be_gone_is_overdue(run, closed, monkeypatch):
    later = closed.now() + 2 * DAY
    monkeypatch.setattr("celery_dlq.view.times.utc_now", lambda: later)
    out = run("stats").stdout
    assert "Overdue           36h" in out
    assert "Next expires" not in out


def test_the_archive_is_shown_with_its_last_check(run, read, archived):
    found = read("stats")["archive"]
    assert (found["segments"], found["letters"], found["bytes"]) == (1, 3, archived.size)
    assert found["last_segment_at"]
    assert found["verified_at"]
    assert found["damaged"] == 0
    out = run("stats").stdout
    assert f"3 letters, {byte_size(archived.size)} in 1 segment" in out
    assert "Last check" in out
    assert "never" not in out
    assert "Problems" not in out


def test_a_check_is_in_the_audit(read, archived):
    (act,) = read("audit", "--act", "verify")
    assert (act["count"], act["detail"]["segments"]) == (3, 1)
