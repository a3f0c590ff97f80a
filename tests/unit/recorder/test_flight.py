from __future__ import annotations

import errno
import os
import threading
from types import SimpleNamespace

import pytest

from celery_dlq.recorder.files import FilesState, look
from celery_dlq.recorder.flight import PAUSE_S, FlightRecorder
from celery_dlq.recorder.segment import read


class Time:
    now = 1_000.0

    def __call__(self):
        return self.now


def message(body=b"[[1], {}, {}]", **changes):
    given = {
        "body": body, "headers": {"id": "one", "task": "shop.charge"}, "properties": {},
        "delivery_info": {"exchange": "", "routing_key": "celery"}, "content_type": "application/json",
        "content_encoding": "utf-8", "errors": [], "acknowledged": False,
    }  # fmt: skip
    return SimpleNamespace(**{**given, **changes})


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def recorder(tmp_path, time):
    recorder = FlightRecorder(tmp_path / "recorder", worker="w@host", now=time, monotonic=time)
    yield recorder
    recorder.close()


def waiting(recorder):
    return sum(one.messages for one in look(recorder.directory))


def test_a_message_is_in_a_file_from_its_record_to_its_end(recorder):
    entry = recorder.record(message(), "shop.charge", 7)
    [found] = look(recorder.directory)
    assert (found.state, found.messages, found.owner.worker) == (FilesState.IN_USE, 1, "w@host")
    assert recorder.live == 1
    entry.end()
    assert (waiting(recorder), recorder.live) == (0, 0)


def test_the_files_go_with_the_worker_if_all_messages_have_ended(recorder):
    recorder.record(message(), "shop.charge", 7).end()
    recorder.close()
    assert list(look(recorder.directory)) == []


def test_the_files_stay_if_a_message_has_not_ended(recorder, caplog):
    entry = recorder.record(message(), "shop.charge", 7)
    recorder.close()
    assert waiting(recorder) == 1
    assert "1 messages had not ended" in caplog.text
    entry.end()


def test_an_end_after_the_end_leaves_the_place_to_another_message(recorder):
    first = recorder.record(message(), "shop.charge", 7)
    first.end()
    recorder._current.reuse()
    second = recorder.record(message(), "shop.charge", 7)
    first.end()
    assert waiting(recorder) == 1
    second.end()


def test_files_are_used_again(recorder):
    for _ in range(30):
        entries = [recorder.record(message(b"x" * 200_000), "shop.charge", 7) for _ in range(4)]
        for entry in entries:
            entry.end()
    [found] = recorder.directory.iterdir()
    assert len(list(found.glob("*.rec"))) <= 2
    assert recorder.recorded == 120


def test_a_message_that_is_larger_than_a_file_has_one_of_its_own(recorder):
    entry = recorder.record(message(b"x" * (5 << 20)), "shop.charge", 7)
    assert waiting(recorder) == 1
    entry.end()
    recorder.record(message(), "shop.charge", 7).end()


def test_a_full_disk_is_logged_once_and_tried_again_later(recorder, time, monkeypatch, caplog):
    caplog.set_level("INFO")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        assert [recorder.record(message(), "shop.charge", 7) for _ in range(3)] == [None] * 3
        time.now += PAUSE_S
        assert recorder.record(message(), "shop.charge", 7) is None
    assert recorder.uncovered == 4
    assert caplog.text.count("the flight recorder cannot write") == 1
    time.now += PAUSE_S
    recorder.record(message(), "shop.charge", 7).end()
    assert "writes to" in caplog.text
    assert recorder.uncovered == 4


def test_the_files_of_a_worker_are_bounded(tmp_path, time):
    recorder = FlightRecorder(tmp_path, worker="w@host", max_size=1 << 20, monotonic=time)
    entries = [recorder.record(message(b"x" * 100_000), "shop.charge", 7) for _ in range(20)]
    covered = [entry for entry in entries if entry is not None]
    assert 4 <= len(covered) < 20
    assert recorder.uncovered == 20 - len(covered)
    for entry in covered:
        entry.end()
    recorder.close()


def test_threads_may_record_at_the_same_time(recorder):
    def work():
        for _ in range(300):
            recorder.record(message(), "shop.charge", 7).end()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (recorder.recorded, recorder.live, waiting(recorder)) == (1_200, 0, 0)


def test_a_message_that_the_broker_has_forgotten_is_noted_at_once(recorder):
    entries = [recorder.record(message(delivery_tag=tag), "shop.charge", 7) for tag in ("a", "b")]
    recorder.acknowledged("b")
    recorder.acknowledged("unknown")
    [path] = recorder.directory.glob("*/*.rec")
    assert [entry.is_acknowledged for entry in read(path.read_bytes()).entries] == [False, True]
    for entry in entries:
        entry.end()
