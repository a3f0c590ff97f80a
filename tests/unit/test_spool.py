import os
import subprocess
import sys

import pytest
from factories import T0, letter

from celery_dlq.letter import Outcome
from celery_dlq.spool import Spool, decode, encode

LETTERS = [letter("a"), letter("b")]
OUTCOME = Outcome(task_id="a", redrive=1, succeeded_at=T0, worker="w")


@pytest.fixture
def spool(tmp_path):
    spool = Spool(tmp_path / "spool")
    yield spool
    spool.close()


def drained(spool):
    taken = []
    spool.drain(taken.extend)
    return taken


def test_records_come_back_as_they_were_and_in_order(spool):
    spool.append(LETTERS)
    spool.append([OUTCOME])
    assert drained(spool) == [*LETTERS, OUTCOME]


def test_a_drained_file_is_gone(spool):
    spool.append(LETTERS)
    drained(spool)
    assert spool.files() == []
    assert drained(spool) == []


def test_what_the_store_does_not_take_stays(spool):
    spool.append(LETTERS)

    def refuse(records):
        raise ConnectionError

    with pytest.raises(ConnectionError):
        spool.drain(refuse)
    assert drained(spool) == LETTERS


def test_appending_goes_on_after_a_drain(spool):
    spool.append(LETTERS[:1])
    assert drained(spool) == LETTERS[:1]
    spool.append(LETTERS[1:])
    assert drained(spool) == LETTERS[1:]


def test_a_torn_line_is_set_aside_and_the_rest_is_drained(spool, tmp_path):
    spool.append(LETTERS)
    spool.close()
    [path] = spool.files()
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    assert drained(spool) == LETTERS[:1]
    [torn] = spool.directory.glob("*.torn")
    assert torn.read_bytes() == encode(LETTERS[1])[:-40]


def test_a_record_of_a_newer_release_is_set_aside(spool):
    spool.append(LETTERS[:1])
    spool.close()
    [path] = spool.files()
    newer = path.read_bytes().replace(b'"format": 1', b'"format": 2')
    path.write_bytes(newer)
    assert drained(spool) == []
    [aside] = spool.directory.glob("*.torn")
    assert aside.read_bytes() == newer


def test_a_living_writers_file_is_left_alone(spool, tmp_path):
    """A second process appends, lives on, and then dies: only then is its file drained."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[2]); from factories import letter\n"
        "from celery_dlq.spool import Spool\n"
        "spool = Spool(sys.argv[1]); spool.append([letter('theirs')])\n"
        "print('spooled', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(spool.directory), os.path.dirname(__file__) + "/.."],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with other:
        assert other.stdout.readline() == b"spooled\n"
        assert drained(spool) == []
        other.kill()
    assert [record.task_id for record in drained(spool)] == ["theirs"]


def test_a_write_that_fails_half_way_leaves_no_torn_line(spool, monkeypatch):
    spool.append(LETTERS[:1])
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        spool.append(LETTERS[1:])
    monkeypatch.undo()
    spool.append([OUTCOME])
    assert drained(spool) == [LETTERS[0], OUTCOME]


@pytest.mark.parametrize(
    "line", [b"", b"{}", b"[]", b"null", b'{"kind": "x"}', b"\xff", b'{"kind": "letter"}']
)
def test_what_is_no_record_is_a_value_error(line):
    with pytest.raises(ValueError):
        decode(line)
