from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from celery_dlq.recorder.files import FilesState, Standing, locked_files, look, standing

PROGRAM = """
import sys, time
from types import SimpleNamespace
from celery_dlq.recorder.flight import FlightRecorder

recorder = FlightRecorder(sys.argv[1], worker="w@host")
for number in range(3):
    message = SimpleNamespace(
        body=b"[[%d], {}, {}]" % number, headers={"id": str(number), "task": "shop.charge"},
        properties={"when": b"bytes"}, delivery_info={}, content_type="application/json",
        content_encoding="utf-8", errors=[], acknowledged=number < 2,
    )
    entry = recorder.record(message, "shop.charge", 7)
    if number == 0:
        entry.end()
recorder.confirm()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def worker(tmp_path):
    """A process that has recorded three messages, of which one has ended and one is acknowledged."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, env=os.environ
    )
    assert process.stdout.readline() == b"ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def kill(worker):
    worker.send_signal(signal.SIGKILL)
    worker.wait()


def test_files_of_a_living_process_are_left_alone(worker, tmp_path):
    [found] = look(tmp_path)
    assert (found.state, found.messages) == (FilesState.IN_USE, 2)
    with locked_files(found.path) as files:
        assert files is None


def test_the_messages_of_all_directories_are_added_up(worker, tmp_path):
    assert standing(look(tmp_path)) == Standing(
        running=2, unrecovered=0, forgotten=0, oldest_at=None
    )
    kill(worker)
    [found] = look(tmp_path)
    assert standing([found]) == Standing(
        running=0, unrecovered=2, forgotten=1, oldest_at=found.written_at
    )


def test_messages_that_the_broker_may_deliver_again_are_not_overdue(worker, tmp_path):
    kill(worker)
    [found] = look(tmp_path)
    with locked_files(found.path) as files:
        next(files.messages())[1]()
    seen = standing(look(tmp_path))
    assert (seen.unrecovered, seen.forgotten, seen.oldest_at) == (1, 0, None)


def test_messages_of_a_killed_process_are_read_and_its_files_deleted(worker, tmp_path):
    kill(worker)
    [found] = look(tmp_path)
    assert (found.state, found.messages) == (FilesState.GONE, 2)
    with locked_files(found.path) as files:
        messages = list(files.messages())
        read = [(one.headers["id"], one.is_acknowledged, one.body) for one, _ in messages]
        assert read == [("1", True, b"[[1], {}, {}]"), ("2", False, b"[[2], {}, {}]")]
        assert messages[0][0].properties == {"when": b"bytes"}
        with locked_files(found.path) as others:
            assert others is None
        messages[0][1]()
        files.finish()
    with locked_files(found.path) as files:
        assert [one.headers["id"] for one, _ in files.messages()] == ["2"]
        for _, settle in files.messages():
            settle()
        files.finish()
    assert list(look(tmp_path)) == []


def test_a_damaged_file_is_kept_and_what_can_be_read_is_read(worker, tmp_path):
    kill(worker)
    [directory] = (one.path for one in look(tmp_path))
    [path] = directory.glob("*.rec")
    data = bytearray(path.read_bytes())
    data[data.index(b"[[2], {}, {}]")] ^= 1
    path.write_bytes(data)
    with locked_files(directory) as files:
        for one, settle in files.messages():
            assert one.headers["id"] == "1"
            settle()
        [kept] = files.finish()
    assert kept.suffix == ".damaged"
    assert [one.state for one in look(tmp_path)] == [FilesState.DAMAGED]
