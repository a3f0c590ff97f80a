"""A hook that raises, hangs, or is flooded harms neither capture nor the others."""

import multiprocessing
import threading

import pytest
from support.clock import Clock
from support.factories import T0, letter

from celery_dlq.hooks import EventHook, EventKind
from celery_dlq.hooks.caller import COMPLAIN_S, Caller, Waiting

#: Seconds after which a test gives up on another thread.
PATIENCE_S = 60


def waiting(value, size=0, kind=EventKind.DEAD_LETTER):
    return Waiting(kind, T0, lambda: value, size)


class Gate:
    """A hook that does not return before it is opened."""

    def __init__(self):
        self.entered, self.opened, self.told = threading.Event(), threading.Event(), []

    def __call__(self, value):
        self.entered.set()
        assert self.opened.wait(PATIENCE_S)
        self.told.append(value)


def finish(caller):
    caller.finish(caller._monotonic() + PATIENCE_S)
    assert not caller.waiting


def told(hook, *values):
    caller = Caller(hook)
    for value in values:
        caller.put(waiting(value))
    finish(caller)
    return caller


def test_a_plain_callable_gets_the_value():
    seen = []
    told(seen.append, letter("a"), letter("b"))
    assert [value.task_id for value in seen] == ["a", "b"]


def test_an_event_hook_gets_the_event():
    class Keeping(EventHook):
        def __init__(self):
            self.seen = []

        def __call__(self, event):
            self.seen.append(event)

    hook = Keeping()
    told(hook, letter("a"))
    [event] = hook.seen
    assert (event.kind, event.at, event.value.task_id) == (EventKind.DEAD_LETTER, T0, "a")


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_a_hook_that_raises_is_logged_and_called_again(error, caplog):
    seen = []

    def failing(value):
        seen.append(value)
        if value == "a":
            raise error

    caller = told(failing, "a", "b")
    assert seen == ["a", "b"]
    assert caller.failed == 1
    [record] = caplog.records
    assert "failed on dead_letter" in record.getMessage()
    assert record.exc_info[1] is error


def test_failures_are_logged_once_a_minute_and_counted(caplog):
    clock = Clock(100.0)
    caller = Caller(lambda _value: 1 / 0, monotonic=clock)
    for _ in range(3):
        caller.put(waiting("x"))
    finish(caller)
    clock.now += COMPLAIN_S
    caller.put(waiting("x"))
    finish(caller)
    assert caller.failed == 4
    assert [record.args[-1] for record in caplog.records] == [1, 4]


def test_an_event_that_cannot_be_read_is_a_failure(caplog):
    def away():
        raise OSError("the store is away")

    caller = Caller(print)
    caller.put(Waiting(EventKind.RESOLVED, T0, away))
    finish(caller)
    assert caller.failed == 1
    assert "the store is away" in caplog.text


def test_an_event_whose_letter_is_gone_is_dropped():
    seen = []
    caller = told(seen.append, None)
    assert (seen, caller.failed) == ([], 0)


def test_a_flood_is_dropped_counted_and_logged_once(caplog):
    gate = Gate()
    caller = Caller(gate, size=2)
    caller.put(waiting(0))
    assert gate.entered.wait(PATIENCE_S)
    for number in range(1, 10):
        caller.put(waiting(number))
    assert (caller.waiting, caller.dropped) == (3, 7)
    [record] = caplog.records
    assert "too slow" in record.getMessage()
    gate.opened.set()
    finish(caller)
    assert gate.told == [0, 1, 2]


def test_bodies_that_wait_are_bounded_too():
    gate = Gate()
    caller = Caller(gate, most_bytes=100)
    caller.put(waiting("under way"))
    assert gate.entered.wait(PATIENCE_S)
    caller.put(waiting("large", size=500))  # alone, it waits whatever its size
    caller.put(waiting("small", size=1))
    gate.opened.set()
    finish(caller)
    assert gate.told == ["under way", "large"]
    caller.put(waiting("small", size=100))
    finish(caller)
    assert gate.told[-1] == "small"
    assert caller.dropped == 1


def test_a_hook_that_hangs_is_given_up_at_the_end_once(caplog):
    gate, clock = Gate(), Clock(100.0)
    caller = Caller(gate, monotonic=clock)
    for _ in range(3):
        caller.put(waiting("x"))
    assert gate.entered.wait(PATIENCE_S)
    caller.finish(until=clock.now)
    assert "3 events were dropped" in caplog.text
    caller.finish(until=clock.now + PATIENCE_S)  # the clock stands still: it would wait for ever
    gate.opened.set()


def test_a_hook_that_hangs_does_not_hold_up_another():
    gate, seen = Gate(), threading.Event()
    hanging, other = Caller(gate), Caller(lambda _value: seen.set())
    for caller in (hanging, other):
        caller.put(waiting("x"))
    assert gate.entered.wait(PATIENCE_S)
    assert seen.wait(PATIENCE_S)
    gate.opened.set()


def test_a_forked_process_calls_for_itself():
    calls = multiprocessing.get_context("fork").SimpleQueue()
    caller = told(calls.put, "parent")

    def child():
        caller.put(waiting("child"))
        finish(caller)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(PATIENCE_S)
    assert process.exitcode == 0
    assert [calls.get(), calls.get()] == ["parent", "child"]


def test_its_thread_ends_with_its_process_or_worker_and_the_next_event_starts_another():
    seen = []
    caller = told(seen.append, "a")
    assert f"dlq-hook-{caller.name}" not in [thread.name for thread in threading.enumerate()]
    caller.put(waiting("b"))
    finish(caller)
    assert seen == ["a", "b"]


def test_without_a_thread_to_spare_events_wait_for_the_next_one(no_thread, caplog):
    seen = []
    caller = Caller(seen.append)
    with no_thread():
        caller.put(waiting("a"))
    assert (seen, caller.waiting) == ([], 1)
    assert "cannot start (can't start new thread); its events wait" in caplog.text
    caller.put(waiting("b"))
    finish(caller)
    assert seen == ["a", "b"]
