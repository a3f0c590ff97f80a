"""A store that fails, hangs, or answers questions; batches that another process saves."""

import threading
import time
from pathlib import Path

import pytest
from support.factories import letter
from support.stores.writing import (
    spooled,
    submit,
    wait_until,
)

from celery_dlq.errors import RecordRefused, SchemaError, StoreUnavailable
from celery_dlq.spool.directory import Spool
from celery_dlq.worker.writing import store_calls
from celery_dlq.worker.writing import writer as writer_module
from celery_dlq.worker.writing.saver_process import SaverGone
from celery_dlq.worker.writing.store_calls import StoreHealth
from celery_dlq.worker.writing.writer import Writer


def test_a_store_that_is_down_is_left_in_peace_for_a_while(writer, store, clock):
    store.down = True
    submit(writer, letter("a"))
    store.down = False
    submit(writer, letter("b"))
    assert store.saved == [], "asked again before the pause was over"
    clock.now += store_calls.STORE_PAUSE_S + 1
    submit(writer, letter("c"))
    submit(writer, letter("d"))
    assert sorted(store.saved) == ["a", "b", "c", "d"], "back, and the spool drained"
    assert spooled(writer) == []


def test_a_store_that_is_away_is_told_once_and_so_is_its_return(writer, store, clock, caplog):
    caplog.set_level("INFO")
    store.down = True
    for name in ("a", "b", "c"):
        submit(writer, letter(name))
        clock.now += store_calls.STORE_PAUSE_S + 1
    store.down = False
    submit(writer, letter("d"))
    wait_until(lambda: len(store.saved) == 4)
    writer.stop()
    said = [record.getMessage() for record in caplog.records]
    assert [text for text in said if text.startswith("dead letters go")] == [
        f"dead letters go to the spool {writer._spool.directory}, and parked retries wait: "
        f"{StoreUnavailable()}",
        "dead letters go to the store again",
    ]


def test_a_store_that_failed_a_question_is_looked_at_until_it_is_back(
    writer, store, clock, caplog, monkeypatch
):
    """Nothing is in the spool, and no letter may come for hours."""
    caplog.set_level("INFO")
    monkeypatch.setattr(store_calls, "DRAIN_INTERVAL_S", 0.01)

    def question(_store):
        raise StoreUnavailable

    writer.ask(question, lambda _: None)
    wait_until(lambda: "dead letters go to the spool" in caplog.text)
    store.down = True
    clock.now += store_calls.STORE_PAUSE_S + 1
    wait_until(lambda: store.checks == 1)
    store.down = False

    def works_again_after_the_pause():
        # The writer may not have begun its pause yet.
        clock.now += store_calls.STORE_PAUSE_S + 1
        return "dead letters go to the store again" in caplog.text

    wait_until(works_again_after_the_pause)
    assert caplog.text.count("dead letters go to the spool") == 1


def test_a_store_that_hangs_is_not_waited_for_for_ever(store, tmp_path):
    """Frozen beyond all timeouts of its own, as behind a proxy that passes nothing on."""
    writer = Writer(lambda: store, Spool(tmp_path), size=10, batch_size=10, timeout=0.05)
    store.gate = threading.Event()
    assert submit(writer, letter("a")) == ["a"], "safe in the spool"
    assert store.saved == []
    assert spooled(writer) == ["a"]
    store.gate.set()


def test_a_store_that_hangs_is_asked_again_only_when_it_has_let_go(store, clock, tmp_path):
    writer = Writer(
        lambda: store, Spool(tmp_path), size=10, batch_size=10, timeout=0.05, monotonic=clock
    )
    store.gate, let_go = threading.Event(), threading.Event()
    submit(writer, letter("a"))
    clock.now += store_calls.STORE_PAUSE_S + 1
    submit(writer, letter("b"))
    assert store.calls == 1
    store.gate.set()
    writer._store._late.add_done_callback(lambda _: let_go.set())
    assert let_go.wait(60)
    store.gate = None
    clock.now += store_calls.STORE_PAUSE_S + 1
    submit(writer, letter("c"))
    writer.stop()
    assert store.saved[:1] == ["a"], "the call that was left behind"
    assert "c" in store.saved


class TestQuestions:
    def ask(self, writer, question):
        answers = []
        writer.ask(question, answers.append)
        writer.flush()
        return answers

    def test_the_answer_knows_of_what_was_submitted_before(self, writer, store):
        writer.write(letter("a"), lambda: None)
        assert self.ask(writer, lambda store: list(store.saved)) == [["a"]]

    def test_a_store_that_is_down_gives_no_answer_and_is_left_in_peace(self, writer, store, clock):
        def unavailable(store):
            raise StoreUnavailable

        assert self.ask(writer, unavailable) == [None]
        assert self.ask(writer, lambda store: "too early") == [None]
        clock.now += store_calls.STORE_PAUSE_S + 1
        assert self.ask(writer, lambda store: "back") == ["back"]

    def test_a_store_that_hangs_gives_no_answer(self, store, tmp_path):
        gate = threading.Event()
        writer = Writer(lambda: store, Spool(tmp_path), size=9, batch_size=9, timeout=0.05)
        assert self.ask(writer, lambda store: gate.wait(60)) == [None]
        gate.set()
        writer.stop()

    def test_a_question_that_fails_stops_nothing(self, writer, caplog):
        assert self.ask(writer, lambda store: 1 / 0) == [None]
        assert "ZeroDivisionError" in caplog.text
        assert self.ask(writer, lambda store: "next") == ["next"]

    def test_an_answer_may_lead_to_a_question_while_the_writer_stops(self, writer):
        asked = threading.Event()

        def ask_once_more(_answer):
            assert asked.wait(60)
            time.sleep(0.05)  # stop() waits for this thread by now
            writer.ask(lambda store: store, lambda _: None)

        writer.ask(lambda store: store, ask_once_more)
        stopping = threading.Thread(target=writer.stop, daemon=True)
        stopping.start()
        asked.set()
        stopping.join(timeout=60)
        assert not stopping.is_alive()

    def test_a_caller_that_cannot_take_its_answer_stops_nothing(self, writer):
        writer.ask(lambda store: "answer", lambda answer: 1 / 0)
        assert self.ask(writer, lambda store: "next") == ["next"]


class TestQuestionsOfOneKind:
    """Put while the store is busy, so that all of them wait."""

    @pytest.fixture
    def asked(self):
        return []

    @pytest.fixture
    def double(self, asked):
        def double(store, numbers):
            asked.append(list(numbers))
            if None in numbers:
                raise RecordRefused
            return [2 * number for number in numbers]

        return double

    @pytest.fixture
    def ask_all(self, writer, store):
        """Puts questions, each with what it is about; the answers in the order they came."""

        def ask_all(*questions):
            answers, store.gate = [], threading.Event()
            store.entered.clear()
            writer.write(letter("first"), lambda: None)
            assert store.entered.wait(60)
            for question, about in questions:
                writer.ask_together(question, about, answers.append)
            store.gate.set()
            writer.flush()
            return answers

        return ask_all

    def test_they_are_put_in_one_call(self, ask_all, double, asked):
        assert ask_all(*((double, number) for number in range(5))) == [0, 2, 4, 6, 8]
        assert asked == [[0, 1, 2, 3, 4]]

    def test_in_a_storm_they_wait_for_each_other(self, writer, double, asked, monkeypatch):
        monkeypatch.setattr(writer_module, "HELD_QUIET_S", 30.0)
        monkeypatch.setattr(writer_module, "GATHER_S", 30.0)
        submit(writer, letter("just written"))
        for number in range(3):
            writer.ask_together(double, number, lambda answer: None)
        writer.ask(lambda store: None, lambda answer: None)  # waits for nobody
        writer.flush()
        assert asked == [[0, 1, 2]]

    def test_they_are_put_before_what_waits_is_written(self, writer, store):
        stored = []

        def look(store, numbers):
            stored.append(list(store.saved))
            return numbers

        store.gate = threading.Event()
        writer.write(letter("first"), lambda: None)
        assert store.entered.wait(60)
        writer.write(letter("second"), lambda: None)
        writer.ask_together(look, 1, lambda answer: None)
        store.gate.set()
        writer.flush()
        assert (stored, store.saved) == ([["first"]], ["first", "second"])

    def test_another_kind_is_another_call(self, ask_all, double, asked):
        def triple(store, numbers):
            asked.append(list(numbers))
            return [3 * number for number in numbers]

        assert ask_all((double, 1), (triple, 1), (double, 2)) == [2, 4, 3]
        assert asked == [[1, 2], [1]]

    def test_one_that_the_store_refuses_spoils_none_of_the_others(self, ask_all, double, asked):
        assert ask_all((double, 1), (double, None), (double, 2)) == [2, None, 4]
        assert asked == [[1, None, 2], [1], [None], [2]]

    def test_a_store_that_is_away_is_asked_once(self, ask_all):
        calls = []

        def away(store, numbers):
            calls.append(numbers)
            raise StoreUnavailable

        assert ask_all((away, 1), (away, 2)) == [None, None]
        assert len(calls) == 1


class FakeSaverProcess:
    """Takes batches of at least three; saves them, or is gone."""

    def __init__(self):
        self.saved, self.gone, self.stopped = [], False, False

    def takes(self, records):
        return len(records) >= 3

    def save(self, records):
        if self.gone:
            raise SaverGone
        self.saved += [made.task_id for made in records]

    def stop(self):
        self.stopped = True


def submit_a_storm(writer, store, *names):
    store.gate = threading.Event()
    writer.write(letter("first"), lambda: None)
    assert store.entered.wait(60)
    safe = [threading.Event() for _ in names]
    for name, event in zip(names, safe, strict=True):
        writer.write(letter(name), event.set)
    store.gate.set()
    writer.flush()
    assert all(event.is_set() for event in safe)


def test_a_storm_is_saved_by_the_saver_process(writer, store):
    saver = FakeSaverProcess()
    writer.employ(saver)
    submit_a_storm(writer, store, "a", "b", "c")
    assert (store.saved, saver.saved) == (["first"], ["a", "b", "c"])
    writer.stop()
    assert saver.stopped


def test_what_a_saver_process_leaves_undone_is_saved_in_the_worker(writer, store):
    saver = FakeSaverProcess()
    saver.gone = True
    writer.employ(saver)
    submit_a_storm(writer, store, "a", "b", "c")
    assert store.saved == ["first", "a", "b", "c"]


NO_SCHEMA = SchemaError(
    "The dead-letter store has no schema yet; run: celery -A <app> dlq db upgrade"
)


@pytest.fixture
def health():
    return StoreHealth(Path("/srv/spool"))


@pytest.fixture
def said(caplog):
    caplog.set_level("INFO", "celery_dlq")
    return lambda: [(record.levelname, record.getMessage()) for record in caplog.records]


FAILS = (
    "ERROR",
    "dead letters go to the spool /srv/spool, and parked retries wait: The dead-letter store has no "
    "schema yet; run: celery -A <app> dlq db upgrade",
)
WORKS = ("INFO", "dead letters go to the store again")


def test_a_cause_is_told_once_whichever_thread_notices_it(health, said):
    threads = [
        threading.Thread(target=health.fails, args=(name, NO_SCHEMA))
        for name in ("writer", "upkeep", "redrives")
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said() == [FAILS]


def test_the_end_is_told_once_when_it_works_for_all(health, said):
    for name in ("writer", "upkeep"):
        health.fails(name, NO_SCHEMA)
    health.works("redrives")
    health.works("writer")
    assert said() == [FAILS]
    health.works("upkeep")
    health.works("upkeep")
    assert said() == [FAILS, WORKS]


def test_what_works_is_not_told(health, said):
    health.works("writer")
    assert said() == []


def test_a_new_failure_is_told_again_and_another_cause_by_itself(health, said):
    health.fails("writer", NO_SCHEMA)
    health.fails("writer", StoreUnavailable("away"))
    health.fails("writer", NO_SCHEMA)
    health.works("writer")
    health.fails("writer", NO_SCHEMA)
    away = ("ERROR", "dead letters go to the spool /srv/spool, and parked retries wait: away")
    assert said() == [FAILS, away, WORKS, FAILS]


def test_a_cause_whose_text_changes_with_each_try_floods_no_log(health, said):
    for number in range(1_000):
        health.fails("writer", StoreUnavailable(f"connection {number} was lost"))
    assert len(said()) == 5
