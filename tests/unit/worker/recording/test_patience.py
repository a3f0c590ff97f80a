import threading

import pytest

from celery_dlq.errors import StoreUnavailable
from celery_dlq.worker.recording.patience import Patience


@pytest.fixture
def patience():
    patience = Patience(30)
    yield patience
    patience.stop()


def test_the_result_is_the_works_own(patience):
    assert patience.call(lambda: 1 + 1) == 2


@pytest.mark.parametrize("error", [ValueError, TimeoutError, StoreUnavailable, SystemExit])
def test_an_error_is_the_works_own_too(patience, error):
    def fail():
        raise error("its own")

    with pytest.raises(error, match="its own"):
        patience.call(fail)
    assert patience.call(lambda: "goes on") == "goes on"


def test_all_calls_are_made_on_one_other_thread(patience):
    found = {patience.call(threading.get_ident) for _ in range(3)}
    assert len(found) == 1
    assert found != {threading.get_ident()}


def test_work_that_takes_too_long_is_left_behind_until_it_is_done():
    impatient, gate, done = Patience(0.02), threading.Event(), threading.Event()

    def slow():
        gate.wait(60)
        done.set()

    with pytest.raises(StoreUnavailable, match=r"within 0\.02 s"):
        impatient.call(slow)
    with pytest.raises(StoreUnavailable, match="an earlier call"):
        impatient.call(lambda: "not even begun")
    gate.set()
    assert done.wait(60)
    impatient._latest.result(30)
    impatient._seconds = 30
    assert impatient.call(lambda: "asked again") == "asked again"
    impatient.stop()


def test_it_can_be_stopped_and_used_again(patience):
    first = patience.call(threading.current_thread)
    patience.stop()
    patience.stop()
    first.join(60)
    assert not first.is_alive()
    assert patience.call(lambda: "again") == "again"
