"""How records are saved, and what is left of them without the store and the spool."""

import threading

from support.factories import T0, envelope, letter
from support.stores.writing import (
    spooled,
    submit,
)

from celery_dlq.model.letter import Outcome
from celery_dlq.spool.directory import Spool
from celery_dlq.spool.segment import find_record
from celery_dlq.worker.writing.writer import Writer


def test_letters_are_saved_before_outcomes(writer, store):
    outcome = Outcome(task_id="a", redrive=1, succeeded_at=T0, worker="w")
    assert submit(writer, outcome, letter("a")) == ["a", "a"]
    assert (store.saved, store.outcomes) == (["a"], ["a"])


def test_one_refused_letter_does_not_keep_the_others_out(writer, store):
    store.gate = threading.Event()
    store.poison = {"bad"}
    writer.write(letter("first"), lambda: None)
    assert store.entered.wait(60)
    for name in ("good", "bad", "fine"):
        writer.write(letter(name), lambda: None)
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


def test_a_letter_that_cannot_be_encoded_is_in_the_log_and_stops_nothing(writer, store, caplog):
    class Odd:
        def __str__(self):
            raise ValueError("no text")

        __repr__ = object.__repr__

    store.down = True
    odd = letter("a", envelope=envelope(headers={"odd": Odd()}, body=b"its body"))
    assert submit(writer, odd, letter("b")) == ["a", "b"]
    [record] = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert "its body" in record.getMessage()
    assert spooled(writer) == ["b"]


def test_what_still_fits_is_spooled_and_the_rest_is_in_the_log(store, clock, tmp_path, caplog):
    spool = Spool(tmp_path / "spool", max_size=3_340)
    writer = Writer(lambda: store, spool, size=10, batch_size=10, monotonic=clock)
    store.down, store.gate = True, threading.Event()
    writer.write(letter("first"), lambda: None)
    assert store.entered.wait(60)
    records = [letter("big", envelope=envelope(body=b"x" * 5_000)), letter("small")]
    for record in records:
        writer.write(record, lambda: None)
    store.gate.set()
    assert submit(writer) == []
    [told] = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert find_record(told.getMessage()) == records[0]
    assert "recover FILE" in told.getMessage()
    assert spooled(writer) == ["first", "small"]
