import threading

import pytest

from celery_dlq.base.bounded import TakesTooLong, bounded

LONG_S = 60


def test_a_call_gives_its_result_or_its_error_from_a_thread_that_keeps_no_process():
    thread = bounded(threading.current_thread, LONG_S, thread_name="dlq-test")
    assert (thread.name, thread.daemon) == ("dlq-test", True)
    for error in (KeyError("x"), TimeoutError("its own"), SystemExit(1)):
        with pytest.raises(type(error)) as caught:
            bounded(lambda error=error: (_ for _ in ()).throw(error), LONG_S, thread_name="t")
        assert caught.value is error


def test_a_call_that_takes_too_long_goes_on_without_its_caller():
    end = threading.Event()
    with pytest.raises(TakesTooLong) as caught:
        bounded(lambda: end.wait(LONG_S), 0.01, thread_name="t")
    assert not caught.value.future.done()
    end.set()
    assert caught.value.future.result(LONG_S)


def test_without_a_thread_to_spare_the_call_fails(no_thread):
    with no_thread(), pytest.raises(RuntimeError, match="can't start new thread"):
        bounded(int, LONG_S, thread_name="t")
