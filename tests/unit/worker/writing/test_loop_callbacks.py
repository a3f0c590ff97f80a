import select
import threading

import pytest
from support.factories import letter

from celery_dlq.worker.writing import loop_callbacks as module
from celery_dlq.worker.writing.loop_callbacks import LoopCallbacks
from celery_dlq.worker.writing.writer import HELD_QUIET_S, QUIET_S


class HeldWriter:
    """Keeps what is submitted until the test releases it, from another thread."""

    def __init__(self):
        self.held = []
        self.submitted = threading.Event()

    def write(self, record, safe, *, quiet_s):
        self.quiet_s = quiet_s
        self.held.append(safe)
        self.submitted.set()

    def ask(self, question, answered):
        self.held.append(lambda: answered(question("the store")))
        self.submitted.set()

    def ask_together(self, question, about, answered):
        self.held.append(lambda: answered(question("the store", [about])[0]))
        self.submitted.set()

    def release(self):
        held, self.held = self.held, []
        thread = threading.Thread(target=lambda: [safe() for safe in held])
        thread.start()
        thread.join()

    def flush(self):
        self.release()


class Hub:
    def __init__(self):
        self.readers = {}

    def add_reader(self, fd, callback):
        self.readers[fd] = callback

    def turn(self):
        """One turn of an event loop: call back for what is readable."""
        for fd in select.select(list(self.readers), [], [], 0)[0]:
            self.readers[fd]()


@pytest.fixture
def writer():
    return HeldWriter()


@pytest.fixture
def spooled():
    return []


@pytest.fixture
def desk(writer, spooled):
    return LoopCallbacks(writer, spooled.append)


def test_in_the_event_loop_the_caller_goes_on_and_is_called_back_there(desk, writer):
    hub, called = Hub(), []
    desk.join_loop(hub)
    desk.write(letter("a"), lambda: called.append(threading.get_ident()))
    hub.turn()
    assert called == [], "not safe yet"
    writer.release()
    assert called == [], "not from the writer's thread"
    hub.turn()
    assert called == [threading.get_ident()]


def test_a_message_that_keeps_others_from_coming_is_not_gathered_for_long(desk, writer):
    desk.join_loop(Hub())
    waits = []
    for urgent in (False, True):
        desk.write(letter("a"), lambda: None, urgent=urgent)
        waits.append(writer.quiet_s)
    assert waits == [QUIET_S, HELD_QUIET_S]


def test_callbacks_keep_their_order_and_one_that_raises_stops_none(desk, writer, caplog):
    hub, called = Hub(), []
    desk.join_loop(hub)
    desk.write(letter("a"), lambda: called.append("a"))
    desk.write(letter("b"), lambda: 1 / 0)
    desk.write(letter("c"), lambda: called.append("c"))
    writer.release()
    hub.turn()
    assert called == ["a", "c"]
    assert "ZeroDivisionError" in caplog.text


def test_another_thread_waits_for_its_own_record(desk, writer):
    desk.join_loop(Hub())
    called = []
    caller = threading.Thread(
        target=lambda: desk.write(letter("a"), lambda: called.append(threading.get_ident()))
    )
    caller.start()
    assert writer.submitted.wait(60)
    assert called == []
    writer.release()
    caller.join(60)
    assert called == [caller.ident]


def test_leaving_the_loop_finishes_what_is_under_way(desk, writer):
    called = []
    desk.join_loop(Hub())
    desk.write(letter("a"), lambda: called.append("a"))
    desk.leave_loop()
    assert called == ["a"]


def test_a_new_loop_takes_over_after_a_lost_connection(desk, writer):
    called = []
    desk.join_loop(Hub())
    desk.leave_loop()
    hub = Hub()
    desk.join_loop(hub)
    desk.write(letter("a"), lambda: called.append("a"))
    writer.release()
    hub.turn()
    assert called == ["a"]


class TestNow:
    """From a signal handler: nothing is called back, and nothing is waited for without end."""

    def test_the_record_is_safe_when_it_returns(self, desk, writer, spooled):
        desk.join_loop(Hub())
        releasing = threading.Thread(
            target=lambda: (writer.submitted.wait(60), writer.release()), daemon=True
        )
        releasing.start()
        desk.write_now(letter("a"))
        assert (writer.held, spooled) == ([], [])

    def test_a_writer_that_is_held_up_leaves_it_to_the_spool(
        self, desk, writer, spooled, monkeypatch
    ):
        monkeypatch.setattr(module, "NOW_S", 0.01)
        desk.write_now(letter("a"))
        assert [record.task_id for record in spooled] == ["a"]


def test_an_answer_comes_in_the_event_loop(desk, writer):
    hub, answers = Hub(), []
    desk.join_loop(hub)
    desk.ask(str.upper, lambda answer: answers.append((answer, threading.get_ident())))
    writer.release()
    assert answers == [], "not from the writer's thread"
    hub.turn()
    assert answers == [("THE STORE", threading.get_ident())]


def test_another_thread_waits_for_its_answer(desk, writer):
    desk.join_loop(Hub())
    answers = []
    caller = threading.Thread(target=lambda: desk.ask(str.upper, answers.append))
    caller.start()
    assert writer.submitted.wait(60)
    assert answers == []
    writer.release()
    caller.join(60)
    assert answers == ["THE STORE"]


def test_what_is_asked_together_comes_back_to_each(desk, writer):
    def spell(store, letters):
        return [f"{store}: {letter}" for letter in letters]

    hub, answers = Hub(), []
    desk.join_loop(hub)
    for letter_ in "ab":
        desk.ask_together(spell, letter_, answers.append)
    writer.release()
    hub.turn()
    assert answers == ["the store: a", "the store: b"]
