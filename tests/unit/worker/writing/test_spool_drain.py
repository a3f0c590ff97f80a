"""Spooled letters are brought into the store, between new ones."""

import threading

from support.factories import letter
from support.stores.writing import (
    spooled,
    spooled_by_an_earlier_worker,
    submit,
    wait_until,
)

from celery_dlq.spool.directory import Spool


def test_an_earlier_workers_spool_is_drained_at_the_start(writer, store, tmp_path):
    earlier = Spool(tmp_path / "spool")
    earlier.append([letter("theirs")])
    earlier.close()
    submit(writer, letter("ours"))
    wait_until(lambda: len(store.saved) == 2)
    assert sorted(store.saved) == ["ours", "theirs"]


def test_new_letters_are_written_between_the_steps_of_a_long_drain(
    writer, store, tmp_path, monkeypatch
):
    monkeypatch.setattr("celery_dlq.spool.directory.STEP_RECORDS", 1)
    spooled_by_an_earlier_worker(tmp_path / "spool", 20)
    store.gate = threading.Event()
    writer.start()
    assert store.entered.wait(60)
    writer.write(letter("new"), lambda: None)
    store.gate.set()
    writer.flush()
    assert store.saved.index("new") < 3
    wait_until(lambda: len(store.saved) == 21)


def test_a_drain_that_the_stop_interrupts_goes_on_with_the_next_worker(
    writer, store, tmp_path, monkeypatch
):
    monkeypatch.setattr("celery_dlq.spool.directory.STEP_RECORDS", 1)
    spooled_by_an_earlier_worker(tmp_path / "spool", 20)
    store.gate = threading.Event()
    writer.start()
    assert store.entered.wait(60)
    stopping = threading.Thread(target=writer.stop)
    stopping.start()
    wait_until(lambda: writer.waiting)
    store.gate.set()
    stopping.join()
    assert 0 < len(store.saved) < 20
    assert spooled(writer) == [f"old{n}" for n in range(20)], "the file is free, and whole"
