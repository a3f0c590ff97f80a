import os
from datetime import datetime, timezone

import pytest
from support.factories import letter

from celery_dlq.spool.directory import Spool
from celery_dlq.spool.look import FileState, look
from celery_dlq.spool.segment import encode


@pytest.fixture
def spool(tmp_path):
    spool = Spool(tmp_path)
    yield spool
    spool.close()


def seen(spool):
    return {file.name: (file.state, file.records) for file in look(spool.directory)}


def test_every_file_is_seen_in_its_state(spool):
    line = encode(letter())
    files = {
        "1.jsonl": line * 2,
        "2.jsonl": line + line[:40],
        "3.torn": line[:40],
        "4.refused": line,
        "notes.txt": b"not ours",
    }
    for name, content in files.items():
        (spool.directory / name).write_bytes(content)
    spool.append([letter()])
    [ours] = [path.name for path in spool.files() if path.name not in files]
    assert seen(spool) == {
        "1.jsonl": (FileState.WAITING, 2),
        "2.jsonl": (FileState.WAITING, 1),
        "3.torn": (FileState.TORN, 0),
        "4.refused": (FileState.REFUSED, 1),
        ours: (FileState.IN_USE, 1),
    }


def test_size_and_age_are_the_files(spool):
    path = spool.directory / "1.jsonl"
    path.write_bytes(encode(letter()))
    os.utime(path, (1_000_000_000, 1_000_000_000))
    [file] = look(spool.directory)
    assert file.size == path.stat().st_size
    assert file.written_at == datetime.fromtimestamp(1_000_000_000, timezone.utc)


def test_looking_changes_nothing_and_lets_the_file_go(spool):
    spool.append([letter()])
    spool.close()
    before = {path: path.read_bytes() for path in spool.directory.iterdir()}
    list(look(spool.directory))
    assert {path: path.read_bytes() for path in spool.directory.iterdir()} == before
    taken = []
    for _step in spool.drain(taken.extend):
        pass
    assert len(taken) == 1


def test_no_directory_is_an_empty_spool(tmp_path):
    assert list(look(tmp_path / "none")) == []
