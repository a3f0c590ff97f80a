"""``dlq recover``: what killed workers have left, and its recovery by hand."""

from types import SimpleNamespace

import pytest

from celery_dlq.cli import session
from celery_dlq.model.states import Reason
from celery_dlq.recorder.flight import FlightRecorder


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "spool" / "recorder"


@pytest.fixture
def leave(directory):
    """Leaves the file of a worker that was killed while it ran a message."""

    def leave(task_id):
        recorder = FlightRecorder(directory, worker="w@host")
        message = SimpleNamespace(
            body=b"[[1], {}, {}]", headers={"id": task_id, "task": "shop.charge"}, properties={},
            delivery_info={}, content_type="application/json", content_encoding="utf-8", errors=[],
            acknowledged=True,
        )  # fmt: skip
        recorder.record(message, "shop.charge", 7)
        recorder.confirm()
        recorder._own.close()  # as the kernel does

    return leave


def test_a_recovery_by_hand_is_in_the_audit(run, read, store, directory, leave, monkeypatch):
    monkeypatch.setattr(session.getpass, "getuser", lambda: "ada")
    leave("one")
    leave("two")
    result = run("recover")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "2 letters made, reason lost.")
    assert store.letters.get("one").reason is Reason.LOST
    assert run("recover").stdout.endswith("0 letters made, reason lost.\n")
    [row] = read("audit", "--act", "recover")
    assert (row["who"], row["count"]) == ("ada", 2)
    assert row["detail"] == {"directory": str(directory)}


def test_without_messages_no_store_is_needed(run, app):
    app.conf.dlq_store_url = "sqlite:////no/such/directory/letters.sqlite3"
    result = run("recover")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "0 letters made, reason lost.")


def test_the_list_names_the_worker_and_its_messages(read, directory, leave):
    leave("one")
    [found] = read("recover", "--list")
    assert (found["worker"], found["state"], found["holds"]) == ("w@host", "gone", 1)
    assert (directory / found["name"]).is_dir()
    assert set(found) == {
        "kind", "name", "worker", "host", "pid", "state", "holds", "size", "written_at",
    }  # fmt: skip
