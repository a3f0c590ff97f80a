import threading

import pytest

from celery_dlq.errors import StoreUnavailable
from celery_dlq.worker.writing.bounded_calls import BoundedCalls


@pytest.fixture
def calls():
    calls = BoundedCalls(30)
    yield calls
    calls.stop()


def test_the_result_is_the_works_own(calls):
    assert calls.call(lambda: 1 + 1) == 2


@pytest.mark.parametrize("error", [ValueError, TimeoutError, StoreUnavailable, SystemExit])
def test_an_error_is_the_works_own_too(calls, error):
    def fail():
        raise error("its own")

    with pytest.raises(error, match="its own"):
        calls.call(fail)
    assert calls.call(lambda: "goes on") == "goes on"


def test_all_calls_are_made_on_one_other_thread(calls):
    found = {calls.call(threading.get_ident) for _ in range(3)}
    assert len(found) == 1
    assert found != {threading.get_ident()}


def test_work_that_takes_too_long_is_left_behind_until_it_is_done():
    short, gate, done = BoundedCalls(0.02), threading.Event(), threading.Event()

    def slow():
        gate.wait(60)
        done.set()

    with pytest.raises(StoreUnavailable, match=r"within 0\.02 s"):
        short.call(slow)
    with pytest.raises(StoreUnavailable, match="an earlier call"):
        short.call(lambda: "not even begun")
    gate.set()
    assert done.wait(60)
    short._latest.result(30)
    short._seconds = 30
    assert short.call(lambda: "asked again") == "asked again"
    short.stop()


def test_it_can_be_stopped_and_used_again(calls):
    first = calls.call(threading.current_thread)
    calls.stop()
    calls.stop()
    first.join(60)
    assert not first.is_alive()
    assert calls.call(lambda: "again") == "again"


def test_without_a_thread_to_spare_the_next_call_tries_again(calls, no_thread):
    with no_thread(), pytest.raises(RuntimeError, match="can't start new thread"):
        calls.call(lambda: "not begun")
    assert calls.call(lambda: "asked again") == "asked again"
