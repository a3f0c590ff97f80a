"""How much may wait for the store, and how much is written at once."""

import threading

from support.factories import envelope, letter

from celery_dlq.spool import Spool
from celery_dlq.worker.writing import inbox
from celery_dlq.worker.writing.writer import Writer


def test_a_full_writer_says_so_and_makes_nobody_wait(store, tmp_path):
    writer = Writer(lambda: store, Spool(tmp_path), size=2, batch_size=1)
    store.gate = threading.Event()
    writer.submit(letter("a"), lambda: None)
    assert store.entered.wait(60)
    writer.submit(letter("b"), lambda: None)
    assert not writer.is_full(), "one is being written, one waits"
    writer.submit(letter("c"), lambda: None)
    assert writer.is_full()
    writer.submit(letter("d"), lambda: None)
    assert writer.waiting == 3
    store.gate.set()
    writer.stop()
    assert not writer.is_full()
    assert store.saved == ["a", "b", "c", "d"]


def test_large_bodies_fill_a_writer_sooner(store, tmp_path, monkeypatch):
    monkeypatch.setattr(inbox, "QUEUE_BYTES", 200)
    writer = Writer(lambda: store, Spool(tmp_path), size=1_000, batch_size=1)
    store.gate, big = threading.Event(), envelope(body=b"x" * 100)
    writer.submit(letter("a", envelope=big), lambda: None)
    assert store.entered.wait(60)
    assert not writer.is_full()
    writer.submit(letter("b", envelope=big), lambda: None)
    assert writer.is_full()
    store.gate.set()
    writer.flush()
    assert not writer.is_full()
    writer.stop()


def test_a_batch_is_bounded_in_bytes(writer, store, monkeypatch):
    monkeypatch.setattr(inbox, "BATCH_BYTES", 150)
    store.gate, big = threading.Event(), envelope(body=b"x" * 100)
    writer.submit(letter("first"), lambda: None)
    assert store.entered.wait(60)
    for n in range(4):
        writer.submit(letter(f"l{n}", envelope=big), lambda: None)
    store.gate.set()
    writer.flush()
    assert store.batches == [1, 2, 2]
