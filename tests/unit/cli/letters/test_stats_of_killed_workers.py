"""``dlq stats`` about messages of killed workers."""

from __future__ import annotations

import os
from datetime import timedelta
from types import SimpleNamespace

import pytest
from support.stores.losses import lost_letter, trouble

from celery_dlq.recorder.flight import FlightRecorder
from celery_dlq.store.database import clock

HOSTILE = "\x1b[31m\u202e\ud800<b>\n" * 50


@pytest.fixture
def directory(app, tmp_path):
    """Set before the settings are read."""
    app.conf.dlq_spool_dir = str(tmp_path / "spool")
    return tmp_path / "spool" / "recorder"


@pytest.fixture
def now(directory, store, monkeypatch):
    """The present, also for the clock of the database."""
    present = store.now()
    monkeypatch.setattr(clock, "now", lambda _connection: present)
    return present


def leave(directory, *, acknowledged, worker="w@host"):
    """The file of a worker that was killed while it ran a message."""
    recorder = FlightRecorder(directory, worker=worker)
    message = SimpleNamespace(
        body=b"[[1], {}, {}]", headers={"id": "one", "task": "shop.charge"}, properties={},
        delivery_info={}, content_type="application/json", content_encoding="utf-8", errors=[],
        acknowledged=acknowledged,
    )  # fmt: skip
    recorder.record(message, "shop.charge", 7)
    recorder.confirm()
    recorder._own.close()  # as the kernel does


def test_without_losses_nothing_is_said(run, read, directory, now):
    found = read("stats")["recorder"]
    assert found == {
        "lost_open": 0, "lost_arrived_24h": 0, "reports": [],
        "here": {
            "running": 0, "unrecovered": 0, "forgotten": 0, "oldest_at": None, "uncounted": 0,
        },
    }  # fmt: skip
    assert "Killed workers" not in run("stats").stdout


def test_lost_letters_are_counted(run, read, directory, store, now):
    ages = {"new": timedelta(hours=1), "old": timedelta(days=2)}
    store.letters.save([lost_letter(name, now - age) for name, age in ages.items()])
    found = read("stats")["recorder"]
    assert (found["lost_open"], found["lost_arrived_24h"]) == (2, 1)
    assert "2 open letters, 1 in the last 24 h" in run("stats").stdout


def test_messages_in_the_files_of_this_machine(run, read, directory, now):
    for acknowledged in (True, True, False):
        leave(directory, acknowledged=acknowledged)
    here = read("stats")["recorder"]["here"]
    assert (here["unrecovered"], here["forgotten"], here["running"]) == (3, 2, 0)
    assert here["oldest_at"]
    out = run("stats").stdout
    assert "3 messages, of which the broker may deliver 1 again" in out
    assert "Oldest here" in out


def test_files_that_cannot_be_read_are_not_said_to_be_none(run, read, directory, now):
    directory.parent.mkdir()
    directory.touch()
    assert read("stats")["recorder"]["here"] is None
    assert "Files here  cannot be read" in run("stats").stdout


def test_directories_that_cannot_be_counted_are_mentioned(run, read, directory, monkeypatch):
    def refuse(_directory):
        raise PermissionError(13, "Permission denied")

    (directory / "gone-7-ab").mkdir(parents=True)
    monkeypatch.setattr("celery_dlq.recorder.files._files", refuse)
    assert read("stats")["recorder"]["here"]["uncounted"] == 1
    assert "Not counted here  1 directory" in run("stats").stdout


def test_reports_of_all_machines(run, read, directory, store, now):
    store.recorder_reports.note(trouble(now))
    stuck, waiting, uncovered = read("stats")["recorder"]["reports"]
    assert (stuck["kind"], stuck["messages"], stuck["directory"]) == (
        "stuck", None, "host-b-7-stuck",
    )  # fmt: skip
    assert (waiting["kind"], waiting["messages"]) == ("waiting", 2)
    assert (uncovered["kind"], uncovered["directory"], uncovered["messages"]) == (
        "uncovered", None, 1_234,
    )  # fmt: skip
    assert uncovered["seen_at"] == now.isoformat()
    out = " ".join(run("stats").stdout.split())
    assert "cannot be recovered: PermissionError: 1.rec is not readable" in out
    assert "run without a copy: [Errno 28] No space left on device" in out


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_hostile_names_stay_harmless(run, queue, directory, store, now, form):
    store.recorder_reports.note(trouble(now, HOSTILE))
    leave(directory, acknowledged=True, worker=HOSTILE)
    [left] = queue.recorder.look()
    left.path.rename(left.path.with_name(os.fsdecode(b"\x1b[31m\xff")))
    result = run("stats", "--format", form)
    assert result.exit_code == 0
    assert not {"\x1b", "\u202e", "\ud800"} & {*result.stdout}
