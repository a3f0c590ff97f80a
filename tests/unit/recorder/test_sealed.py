"""With a ring, the messages in the flight recorder's files are encrypted."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from celery_dlq.base.sealing import Keyring
from celery_dlq.errors import ContentsSealed
from celery_dlq.recorder.files import locked_files, look
from celery_dlq.recorder.flight import FlightRecorder

RING = Keyring({"one": b"o" * 32})
SECRET = b"4929-1111"


def message(**changes):
    given = {
        "body": b'[["%s"], {}, {}]' % SECRET, "content_encoding": "utf-8", "errors": [],
        "headers": {"id": "one", "task": "shop.charge", "customer": SECRET.decode()}, "properties": {},
        "delivery_info": {}, "content_type": "application/json", "acknowledged": True,
    }  # fmt: skip
    return SimpleNamespace(**{**given, **changes})


@pytest.fixture
def killed(tmp_path):
    """The directory of a worker that was killed while it ran a message."""
    recorder = FlightRecorder(tmp_path, worker="w@host", ring=RING)
    recorder.record(message(), "shop.charge", 7)
    recorder.record(message(headers={"id": "gone"}), "shop.charge", 7).end()
    recorder.confirm()
    recorder._own.close()  # as the kernel does
    return recorder._own.path


def test_no_file_has_the_message_in_clear_and_it_comes_back(killed):
    assert all(SECRET not in path.read_bytes() for path in killed.iterdir())
    with locked_files(killed, RING) as files:
        [(found, settle)] = files.messages()
        settle()
        assert files.finish() == []
    assert (found.headers["customer"], found.body) == (SECRET.decode(), message().body)
    assert found.is_acknowledged


@pytest.mark.parametrize("ring", [None, Keyring({"other": b"x" * 32})])
def test_without_the_key_messages_are_counted_and_stay(killed, ring):
    [found] = look(killed.parent)
    assert (found.messages, found.forgotten) == (1, 1)
    before = {path: path.read_bytes() for path in killed.iterdir()}
    with locked_files(killed, ring) as files, pytest.raises(ContentsSealed):
        list(files.messages())
    assert {path: path.read_bytes() for path in killed.iterdir()} == before


def test_messages_that_were_recorded_without_a_key_are_still_read(tmp_path):
    recorder = FlightRecorder(tmp_path, worker="w@host")
    recorder.record(message(), "shop.charge", 7)
    recorder._own.close()
    with locked_files(recorder._own.path, RING) as files:
        [(found, _settle)] = files.messages()
    assert found.body == message().body


def test_an_entry_from_another_place_is_damage(tmp_path, monkeypatch):
    def elsewhere(facts, body, ring):
        return ring.seal(facts, "elsewhere"), b""

    monkeypatch.setattr("celery_dlq.recorder.flight.sealed", elsewhere)
    recorder = FlightRecorder(tmp_path, worker="w@host", ring=RING)
    recorder.record(message(), "shop.charge", 7)
    recorder._own.close()
    with locked_files(recorder._own.path, RING) as files:
        assert list(files.messages()) == []
        assert len(files.finish()) == 1
