"""With a ring, the lines of a spool are encrypted, and read wherever the key is."""

from __future__ import annotations

import errno
import json

import pytest
from support.factories import T0, letter

from celery_dlq.base.sealing import Keyring
from celery_dlq.errors import ContentsSealed
from celery_dlq.model.letter import Outcome
from celery_dlq.spool.directory import Drained, Spool
from celery_dlq.spool.look import FileState, look
from celery_dlq.spool.segment import decode, encode, find_record

OLD, NEW = b"o" * 32, b"n" * 32
RING, OTHER = Keyring({"new": NEW, "old": OLD}), Keyring({"other": b"x" * 32})
SECRET = "4929-1111"
LETTER = letter("a", args=[SECRET], message=SECRET, traceback=SECRET, log=SECRET)
OUTCOME = Outcome(task_id="a", redrive=1, succeeded_at=T0, worker="w")


@pytest.fixture
def spool(tmp_path):
    spool = Spool(tmp_path / "spool", ring=RING)
    yield spool
    spool.close()


def drain(directory, ring, save=lambda _: None):
    return sum(Spool(directory, ring=ring).drain(save), start=Drained())


@pytest.mark.parametrize("record", [LETTER, OUTCOME])
def test_a_record_comes_back_with_any_key_of_the_ring(record):
    line = encode(record, RING)
    assert SECRET.encode() not in line
    assert set(json.loads(line)) == {"kind", "format", "task_id", "sealed"}
    assert decode(line, RING) == record
    assert decode(line, Keyring({"newest": b"y" * 32, "new": NEW})) == record


def test_a_line_that_was_written_without_a_key_is_still_read():
    assert decode(encode(LETTER), RING) == LETTER


def test_a_record_is_found_in_a_log():
    line = encode(LETTER, RING).decode().strip()
    assert find_record(f"CRITICAL {line} trailing", RING) == LETTER
    assert find_record(json.dumps({"log": f"CRITICAL {line}"}), RING) == LETTER
    with pytest.raises(ContentsSealed, match="set dlq_encryption_keys here"):
        find_record(f"CRITICAL {line}")


def test_a_line_that_was_changed_or_became_another_kind_is_torn_not_locked():
    line = encode(LETTER, RING)
    for changed in (line.replace(b'"letter"', b'"outcome"'), line.replace(line[-20:-8], b"A" * 12)):
        with pytest.raises(ValueError, match="changed, cut, or moved"):
            decode(changed, RING)


def test_a_drain_without_the_key_leaves_the_file_and_drains_the_next_ones(spool, caplog):
    spool.append([LETTER, letter("b")])
    spool.close()
    clear = Spool(spool.directory)
    clear.append([letter("c")])
    clear.close()
    taken = []
    for ring, why in ((None, "set dlq_encryption_keys here"), (OTHER, "is not in dlq_encryption")):
        done = drain(spool.directory, ring, taken.extend)
        assert len(done.failed) == 1
        assert why in caplog.text
    assert [one.task_id for one in taken] == ["c"]
    [left] = look(spool.directory)
    assert (left.state, left.records) == (FileState.WAITING, 2)
    assert drain(spool.directory, RING, taken.extend).stored == 2
    assert list(look(spool.directory)) == []


def test_lines_that_are_set_aside_stay_encrypted(spool):
    def refuse(records):
        raise ValueError(records[0].task_id)

    spool.append([LETTER])
    spool.close()
    assert drain(spool.directory, RING, refuse).refused == 1
    [path] = spool.directory.iterdir()
    assert path.suffix == ".refused"
    assert SECRET.encode() not in path.read_bytes()
    assert find_record(path.read_text(), RING) == LETTER


def test_the_last_resort_in_the_log_is_encrypted(spool, monkeypatch, caplog):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("celery_dlq.spool.directory.new_segment", full)
    spool.keep([LETTER])
    assert SECRET not in caplog.text
    [record] = caplog.records
    assert find_record(record.getMessage(), RING) == LETTER


def test_the_log_names_only_the_id_of_a_letter_that_cannot_be_encoded(spool, monkeypatch, caplog):
    def fail(*_):
        raise ValueError("no")

    monkeypatch.setattr("celery_dlq.spool.directory.encode", fail)
    spool.keep([LETTER])
    assert SECRET not in caplog.text
    assert caplog.records[0].getMessage().endswith("cannot be encoded: 'a'")
