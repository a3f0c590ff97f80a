"""The thread that writes: what it promises, and how it starts and ends."""

import threading

import pytest
from support.factories import envelope, letter
from support.stores.writing import spooled, submit, wait_until

from celery_dlq.spool.directory import Spool
from celery_dlq.worker.writing import writer as module
from celery_dlq.worker.writing.writer import Writer


def test_a_record_is_safe_only_after_it_is_stored(writer, store):
    store.gate = threading.Event()
    safe = threading.Event()
    writer.write(letter("a"), safe.set)
    assert store.entered.wait(60)
    assert not safe.is_set()
    store.gate.set()
    assert safe.wait(60)
    assert store.saved == ["a"]


def test_what_gathers_during_a_commit_is_written_in_one(writer, store):
    store.gate = threading.Event()
    writer.write(letter("first"), lambda: None)
    assert store.entered.wait(60)
    for n in range(50):
        writer.write(letter(f"l{n}"), lambda: None)
    store.gate.set()
    writer.flush()
    assert store.batches == [1, 50]


def test_a_store_that_is_down_loses_nothing_and_holds_nobody_up(writer, store):
    store.down = True
    assert submit(writer, letter("a")) == ["a"]
    assert store.saved == []
    assert spooled(writer) == ["a"]


def threads_of_writers():
    """Threads of other tests may be among these, and end at any time."""
    return {thread for thread in threading.enumerate() if thread.name == "dlq-writer"}


def test_its_threads_end_with_it(writer, store):
    before = threads_of_writers()
    submit(writer, letter("a"))
    own = threads_of_writers() - before
    assert len(own) == 1
    writer.stop()
    assert not own & threads_of_writers()


def test_what_comes_after_its_end_is_written_by_threads_that_end_by_themselves(writer, store):
    before = threads_of_writers()
    writer.stop()
    assert submit(writer, letter("late")) == ["late"]
    assert store.saved == ["late"]
    wait_until(lambda: threads_of_writers() <= before)


def test_it_can_be_started_again(writer, store):
    submit(writer, letter("a"))
    writer.stop()
    writer.start()
    submit(writer, letter("b"))
    assert writer._thread.is_alive()
    assert store.saved == ["a", "b"]


def test_nothing_is_lost_when_it_stops_while_letters_come(writer, store):
    safe = []

    def keep_coming(name):
        for number in range(200):
            writer.write(letter(f"{name}{number}"), lambda: safe.append(1), quiet_s=0.0)

    threads = [threading.Thread(target=keep_coming, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        writer.stop()
    writer.stop()
    assert len(safe) == len(set(store.saved)) == 600


def test_a_caller_that_raises_does_not_stop_the_writer(writer, store):
    writer.write(letter("a"), lambda: 1 / 0)
    assert submit(writer, letter("b")) == ["b"]


def test_a_stopped_writer_can_be_used_again(writer, store):
    submit(writer, letter("a"))
    writer.stop()
    submit(writer, letter("b"))
    assert store.saved == ["a", "b"]


def test_without_a_thread_to_spare_a_letter_waits_for_the_next_one(writer, store, no_thread):
    safe = threading.Event()
    with no_thread(), pytest.raises(RuntimeError, match="can't start new thread"):
        writer.write(letter("a"), safe.set)
    assert not safe.is_set()
    writer.write(letter("b"), lambda: None)
    assert safe.wait(60)
    assert store.saved == ["a", "b"]


def test_a_full_writer_says_so_and_makes_nobody_wait(store, tmp_path):
    writer = Writer(lambda: store, Spool(tmp_path), size=2, batch_size=1)
    store.gate = threading.Event()
    writer.write(letter("a"), lambda: None)
    assert store.entered.wait(60)
    writer.write(letter("b"), lambda: None)
    assert not writer.is_full(), "one is being written, one waits"
    writer.write(letter("c"), lambda: None)
    assert writer.is_full()
    writer.write(letter("d"), lambda: None)
    assert writer.waiting == 3
    store.gate.set()
    writer.stop()
    assert not writer.is_full()
    assert store.saved == ["a", "b", "c", "d"]


def test_large_bodies_fill_a_writer_sooner(store, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "QUEUE_BYTES", 200)
    writer = Writer(lambda: store, Spool(tmp_path), size=1_000, batch_size=1)
    store.gate, big = threading.Event(), envelope(body=b"x" * 100)
    writer.write(letter("a", envelope=big), lambda: None)
    assert store.entered.wait(60)
    assert not writer.is_full()
    writer.write(letter("b", envelope=big), lambda: None)
    assert writer.is_full()
    store.gate.set()
    writer.flush()
    assert not writer.is_full()
    writer.stop()


def test_a_batch_is_bounded_in_bytes(writer, store, monkeypatch):
    monkeypatch.setattr(module, "BATCH_BYTES", 150)
    store.gate, big = threading.Event(), envelope(body=b"x" * 100)
    writer.write(letter("first"), lambda: None)
    assert store.entered.wait(60)
    for n in range(4):
        writer.write(letter(f"l{n}", envelope=big), lambda: None)
    store.gate.set()
    writer.flush()
    assert store.batches == [1, 2, 2]
