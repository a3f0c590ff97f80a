import threading

import pytest
from factories import T0, letter

from celery_dlq.errors import StoreUnavailable
from celery_dlq.letter import Outcome
from celery_dlq.spool import Spool
from celery_dlq.worker import writer as module
from celery_dlq.worker.writer import Writer


class FakeStore:
    """Takes what it is told to take; counts its transactions."""

    def __init__(self):
        self.saved, self.outcomes, self.batches = [], [], []
        self.down = False
        self.poison = set()
        self.gate = None
        self.entered = threading.Event()

    def save(self, letters):
        self.entered.set()
        if self.gate:
            assert self.gate.wait(10)
        if self.down:
            raise StoreUnavailable
        if self.poison & {made.task_id for made in letters}:
            raise ValueError("the database chokes on this")
        self.batches.append(len(letters))
        self.saved += [made.task_id for made in letters]

    def record_outcomes(self, outcomes):
        self.outcomes += [outcome.task_id for outcome in outcomes]


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def store():
    return FakeStore()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def writer(store, clock, tmp_path):
    writer = Writer(
        lambda: store, Spool(tmp_path / "spool"), size=1_000, batch_size=100, monotonic=clock
    )
    yield writer
    writer.stop()


def submit(writer, *records):
    safe = []
    for record in records:
        writer.submit(record, lambda record=record: safe.append(record.task_id))
    writer.flush()
    return safe


def spooled(writer):
    found = []
    writer.stop()
    writer._spool.drain(found.extend)
    return [record.task_id for record in found]


def test_a_record_is_safe_only_after_it_is_stored(writer, store):
    store.gate = threading.Event()
    safe = threading.Event()
    writer.submit(letter("a"), safe.set)
    assert store.entered.wait(10)
    assert not safe.is_set()
    store.gate.set()
    assert safe.wait(10)
    assert store.saved == ["a"]


def test_what_gathers_during_a_commit_is_written_in_one(writer, store):
    store.gate = threading.Event()
    writer.submit(letter("first"), lambda: None)
    assert store.entered.wait(10)
    for n in range(50):
        writer.submit(letter(f"l{n}"), lambda: None)
    store.gate.set()
    writer.flush()
    assert store.batches == [1, 50]


def test_letters_are_saved_before_outcomes(writer, store):
    outcome = Outcome(task_id="a", redrive=1, succeeded_at=T0, worker="w")
    assert submit(writer, outcome, letter("a")) == ["a", "a"]
    assert (store.saved, store.outcomes) == (["a"], ["a"])


def test_a_store_that_is_down_loses_nothing_and_holds_nobody_up(writer, store):
    store.down = True
    assert submit(writer, letter("a")) == ["a"]
    assert store.saved == []
    assert spooled(writer) == ["a"]


def test_a_store_that_is_down_is_left_in_peace_for_a_while(writer, store, clock):
    store.down = True
    submit(writer, letter("a"))
    store.down = False
    submit(writer, letter("b"))
    assert store.saved == [], "asked again before the pause was over"
    clock.now += module.STORE_PAUSE_S + 1
    submit(writer, letter("c"))
    submit(writer, letter("d"))
    assert sorted(store.saved) == ["a", "b", "c", "d"], "back, and the spool drained"
    assert spooled(writer) == []


def test_an_earlier_workers_spool_is_drained_at_the_start(writer, store, tmp_path):
    earlier = Spool(tmp_path / "spool")
    earlier.append([letter("theirs")])
    earlier.close()
    submit(writer, letter("ours"))
    assert sorted(store.saved) == ["ours", "theirs"]


def test_one_refused_letter_does_not_keep_the_others_out(writer, store):
    store.gate = threading.Event()
    store.poison = {"bad"}
    writer.submit(letter("first"), lambda: None)
    assert store.entered.wait(10)
    for name in ("good", "bad", "fine"):
        writer.submit(letter(name), lambda: None)
    store.gate.set()
    writer.flush()
    assert store.saved == ["first", "good", "fine"]
    store.poison = set()
    assert spooled(writer) == ["bad"]


def test_without_store_and_spool_the_whole_letter_is_in_the_log(writer, store, caplog, tmp_path):
    store.down = True
    (tmp_path / "spool").write_text("a file where the directory should be")
    assert submit(writer, letter("a")) == ["a"]
    [record] = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert '"task_id": "a"' in record.getMessage()
    assert '"body": ' in record.getMessage()


def test_a_caller_that_raises_does_not_stop_the_writer(writer, store):
    writer.submit(letter("a"), lambda: 1 / 0)
    assert submit(writer, letter("b")) == ["b"]


def test_a_full_queue_makes_the_caller_wait(store, tmp_path):
    writer = Writer(lambda: store, Spool(tmp_path), size=1, batch_size=1)
    store.gate = threading.Event()
    writer.submit(letter("a"), lambda: None)
    assert store.entered.wait(10)
    writer.submit(letter("b"), lambda: None)
    third = threading.Thread(target=writer.submit, args=(letter("c"), lambda: None))
    third.start()
    third.join(0.1)
    assert third.is_alive(), "the third letter had to wait for room"
    store.gate.set()
    third.join(10)
    writer.stop()
    assert store.saved == ["a", "b", "c"]


def test_a_stopped_writer_can_be_used_again(writer, store):
    submit(writer, letter("a"))
    writer.stop()
    submit(writer, letter("b"))
    assert store.saved == ["a", "b"]
