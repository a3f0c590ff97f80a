import contextlib
import fcntl
import tracemalloc

import pytest
from support.factories import T0, envelope, letter

from celery_dlq.errors import RecordRefused, SettingsError, StoreUnavailable
from celery_dlq.model.letter import Outcome
from celery_dlq.spool import directory, segment
from celery_dlq.spool.directory import Drained, Spool, hand_over
from celery_dlq.spool.segment import encode

LETTERS = [letter("a"), letter("b"), letter("c")]


class Store:
    """Takes records, unless it is away or they are bad."""

    def __init__(self):
        self.taken = []
        self.bad = set()
        self.error = RecordRefused
        self.away_after = None

    def __call__(self, records):
        if self.away_after is not None and len(self.taken) >= self.away_after:
            raise StoreUnavailable
        if self.bad & {record.task_id for record in records}:
            raise self.error("bad data")
        self.taken += records


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def spool(tmp_path):
    spool = Spool(tmp_path)
    yield spool
    spool.close()


def file_of(spool, *lines):
    """A waiting file that holds ``lines``."""
    spool.append(LETTERS[:1])
    spool.close()
    path = spool.files()[-1]
    path.write_bytes(b"".join(lines))
    return path


def drained(spool, store):
    return sum(spool.drain(store), start=Drained())


def names(store):
    return [record.task_id for record in store.taken]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_torn_line_is_set_aside_wherever_it_is_and_the_rest_is_stored(spool, store, place):
    lines = [encode(made) for made in LETTERS]
    torn = lines[place][:40]
    lines[place] = torn if place == 2 else torn + b"\n"
    path = file_of(spool, *lines)
    assert drained(spool, store) == Drained(stored=2, torn=1)
    assert names(store) == [made.task_id for at, made in enumerate(LETTERS) if at != place]
    assert not path.exists()
    assert path.with_suffix(".torn").read_bytes() == torn + b"\n"


def test_two_torn_lines_without_an_end_are_not_run_together(spool, store):
    path = file_of(spool, b"{torn\n", encode(LETTERS[0]), b"{also torn")
    drained(spool, store)
    assert path.with_suffix(".torn").read_bytes() == b"{torn\n{also torn\n"


def test_blank_lines_are_nothing(spool, store):
    file_of(spool, b"\n", encode(LETTERS[0]), b"  \n")
    assert drained(spool, store) == Drained(stored=1)
    assert list(spool.directory.iterdir()) == []


@pytest.mark.parametrize("error", [RecordRefused, ValueError])
def test_a_record_that_the_store_refuses_is_set_aside_and_blocks_nothing(
    spool, store, error, caplog
):
    path = file_of(spool, *map(encode, LETTERS))
    store.bad, store.error = {"b"}, error
    assert drained(spool, store) == Drained(stored=2, refused=1)
    assert names(store) == ["a", "c"]
    assert not path.exists()
    assert path.with_suffix(".refused").read_bytes() == encode(LETTERS[1])
    assert "refused DeadLetter b" in caplog.text


def test_while_the_store_is_away_nothing_is_taken_for_bad(spool, store):
    path = file_of(spool, *map(encode, LETTERS))
    store.away_after = 0
    with pytest.raises(StoreUnavailable):
        drained(spool, store)
    assert list(spool.directory.iterdir()) == [path]


@pytest.mark.parametrize("error", [SettingsError, OSError, MemoryError])
def test_errors_that_do_not_depend_on_records_set_none_aside(spool, error):
    path = file_of(spool, *map(encode, LETTERS))

    def fail(records):
        raise error

    with pytest.raises(error):
        hand_over(LETTERS, fail)
    with contextlib.suppress(SettingsError, MemoryError):
        drained(spool, fail)
    assert list(spool.directory.iterdir()) == [path]


def test_a_store_that_fails_half_way_gets_the_rest_later(spool, store, monkeypatch):
    monkeypatch.setattr(directory, "STEP_RECORDS", 1)
    path = file_of(spool, b"{torn\n", *map(encode, LETTERS))
    store.away_after = 2
    with pytest.raises(StoreUnavailable):
        drained(spool, store)
    assert names(store) == ["a", "b"]
    store.away_after = None
    drained(spool, store)
    assert names(store)[2:] == ["a", "b", "c"], (
        "again from the file's beginning: save is idempotent"
    )
    assert path.with_suffix(".torn").read_bytes() == b"{torn\n", "once, though drained twice"
    assert not path.exists()


def test_one_file_that_fails_leaves_the_others_be(spool, store, monkeypatch, caplog):
    bad = file_of(spool, b"{torn\n")
    bad.with_suffix(".torn").mkdir()
    file_of(spool, encode(LETTERS[1]))
    assert drained(spool, store) == Drained(stored=1, failed=(bad.name,))
    assert bad.exists()
    assert "cannot be drained and stays" in caplog.text


def test_a_file_that_another_process_drains_is_handed_over_once(spool, store):
    path = file_of(spool, encode(LETTERS[0]))
    with path.open("r+b") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        assert drained(spool, store) == Drained(in_use=(path.name,))
    assert drained(spool, store) == Drained(stored=1)


def test_a_file_that_was_drained_while_we_waited_for_its_lock_is_not_drained_again(
    spool, store, monkeypatch
):
    path = file_of(spool, encode(LETTERS[0]))
    real = segment.fcntl.flock

    def slow(file, how):
        path.unlink()
        real(file, how)

    monkeypatch.setattr(segment.fcntl, "flock", slow)
    assert drained(spool, store) == Drained()
    assert store.taken == []


def test_a_step_is_bounded_in_records_and_bytes(spool, monkeypatch):
    monkeypatch.setattr(directory, "STEP_RECORDS", 2)
    sizes = []
    file_of(spool, *map(encode, LETTERS))
    drained(spool, lambda records: sizes.append(len(records)))
    assert sizes == [2, 1]
    monkeypatch.setattr(directory, "STEP_BYTES", 1)
    file_of(spool, *map(encode, LETTERS))
    drained(spool, lambda records: sizes.append(len(records)))
    assert sizes[2:] == [1, 1, 1]


def test_memory_does_not_grow_with_the_file(spool):
    big = encode(letter("big", envelope=envelope(body=b"x" * 100_000)))
    file_of(spool, big * 300)
    tracemalloc.start()
    drained(spool, lambda records: None)
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 300 * len(big) > 40_000_000
    assert peak < 35_000_000, "a step of 8 MiB, its lines and letters, and the step before"


def test_handing_over_tells_the_places_of_what_is_refused(store):
    store.bad = {"a", "c"}
    assert hand_over(LETTERS, store) == [0, 2]
    assert hand_over([], store) == []


def test_outcomes_are_refused_by_name_too(store, caplog):
    store.bad = {"x"}
    assert hand_over([Outcome(task_id="x", redrive=1, succeeded_at=T0, worker="w")], store) == [0]
    assert "refused Outcome x" in caplog.text
