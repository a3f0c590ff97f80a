import os
import signal
import threading
import time
from functools import partial

import pytest
from support.clock import Clock

from celery_dlq.errors import RecordRefused, StoreUnavailable
from celery_dlq.worker.writing import saver_process as module
from celery_dlq.worker.writing.saver_process import STORM_RECORDS, SaverGone, SaverProcess

#: Nearly each starts an interpreter with this package.
pytestmark = pytest.mark.slow

BATCH = tuple(range(STORM_RECORDS))


def open_saver(directory):
    (directory / "pid").write_text(str(os.getpid()))
    return partial(save, directory)


def save(directory, records, wanted):
    """Does what the first record says, in the saver process."""
    act = records[0]
    if act == "refuse":
        raise RecordRefused("too large")
    if act == "fail":
        raise ValueError("the driver chokes")
    if act == "print":
        print("a driver's chatter")
    if act == "hang":
        (directory / "hangs").touch()
        time.sleep(600)
    if act == "exit":
        os._exit(3)
    if act == "wanted":
        return wanted
    return os.getpid(), sum(item for item in records if isinstance(item, int))


def open_nothing():
    raise StoreUnavailable("no such driver")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def answers():
    """What the saver returned: its process, and the sum of the numbers."""
    return []


@pytest.fixture
def saver(tmp_path, clock, answers):
    saver = SaverProcess(
        partial(open_saver, tmp_path), answers.append, wants=bool, timeout=60.0, monotonic=clock
    )
    yield saver
    saver.stop()


def wait_until(ready):
    deadline = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def ready(saver):
    wait_until(lambda: saver.takes(BATCH))
    return saver


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_batch_is_saved_in_another_process(saver, answers, tmp_path):
    ready(saver).save(BATCH)
    pid = int((tmp_path / "pid").read_text())
    assert answers == [(pid, sum(BATCH))]
    assert pid != os.getpid()


def test_one_process_saves_them_all(saver, answers):
    ready(saver)
    for _ in range(5):
        saver.save(BATCH)
    assert len(answers) == 5
    assert len(set(answers)) == 1


def test_it_is_asked_for_each_batch_whether_the_letters_are_wanted(answers, tmp_path):
    wants = [True, False]
    saver = SaverProcess(
        partial(open_saver, tmp_path), answers.append, wants=wants.pop, timeout=60.0
    )  # fmt: skip
    ready(saver)
    saver.save(("wanted",))
    saver.save(("wanted",))
    assert answers == [False, True]
    saver.stop()


def test_a_few_records_start_nothing(saver, tmp_path):
    assert not saver.takes(BATCH[1:])
    assert saver._process is None


def test_until_it_is_ready_the_caller_saves(saver):
    assert not saver.takes(BATCH)
    ready(saver)


def test_the_savers_refusal_is_raised(saver):
    with pytest.raises(RecordRefused, match="too large"):
        ready(saver).save(("refuse",))
    saver.save(BATCH)


def test_an_unexpected_error_leaves_it_to_the_caller(saver):
    with pytest.raises(SaverGone, match="ValueError: the driver chokes"):
        ready(saver).save(("fail",))
    assert saver.takes(BATCH)


def test_what_is_printed_is_no_answer(saver, answers):
    ready(saver).save(("print", 7))
    assert [total for _pid, total in answers] == [7]


def test_one_that_ends_leaves_it_to_the_caller_and_rests_a_while(saver, answers, clock):
    with pytest.raises(SaverGone):
        ready(saver).save(("exit",))
    assert not saver.takes(BATCH)
    assert saver._process is None
    clock.now += module.IDLE_S
    ready(saver).save(BATCH)
    assert len(answers) == 1


def test_one_that_was_killed_is_missed(saver):
    os.kill(ready(saver)._process.pid, signal.SIGKILL)
    with pytest.raises(SaverGone):
        saver.save(BATCH)


def test_a_batch_that_takes_too_long_is_given_up_with_its_process(answers, tmp_path):
    saver = SaverProcess(partial(open_saver, tmp_path), answers.append, wants=bool, timeout=0.2)
    pid = ready(saver)._process.pid
    with pytest.raises(StoreUnavailable, match=r"within 0\.2 s"):
        saver.save(("hang",))
    assert not is_alive(pid)
    assert saver._process is None


def test_one_that_cannot_open_the_store_is_told_once(answers, clock, caplog):
    saver = SaverProcess(open_nothing, answers.append, wants=bool, timeout=60.0, monotonic=clock)
    saver.takes(BATCH)
    wait_until(lambda: not saver.takes(BATCH) and saver._process is None)
    assert not saver.takes(BATCH)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_without_an_interpreter_the_caller_saves(saver, monkeypatch, caplog):
    monkeypatch.setattr(module.sys, "executable", "/nowhere/python")
    assert not saver.takes(BATCH)
    assert not saver.takes(BATCH)
    assert len(caplog.records) == 1


def test_when_it_is_stopped_it_ends(saver, tmp_path):
    pid = ready(saver)._process.pid
    saver.stop()
    assert not is_alive(pid)
    saver.stop()


def test_the_signals_of_the_worker_do_not_end_it(saver, answers):
    process = ready(saver)._process
    for number in (signal.SIGINT, signal.SIGTERM):
        process.send_signal(number)
    saver.save(BATCH)
    assert answers == [(process.pid, sum(BATCH))]


def test_an_idle_one_ends_and_the_next_storm_starts_another(answers, tmp_path):
    idle_at_once = partial(open_saver_that_is_idle_at_once, tmp_path)
    saver = SaverProcess(idle_at_once, answers.append, wants=bool, timeout=60.0)
    process = ready(saver)._process
    assert process.wait(60) == 0
    with pytest.raises(SaverGone):
        saver.save(BATCH)
    assert ready(saver)._process is not process
    saver.stop()


def test_an_idle_one_leaves_no_zombie_until_the_next_storm(answers, tmp_path):
    idle_at_once = partial(open_saver_that_is_idle_at_once, tmp_path)
    saver = SaverProcess(idle_at_once, answers.append, wants=bool, timeout=60.0)
    pid = ready(saver)._process.pid
    wait_until(lambda: not is_alive(pid))  # a zombie still takes signals
    assert answers == []
    saver.stop()


def open_saver_that_is_idle_at_once(directory):
    module.IDLE_S = 0.0
    return open_saver(directory)


def worker_with_a_hanging_saver(directory):
    """A process that is killed while its saver saves, with a child that holds the pipes open."""
    worker = os.fork()
    if worker == 0:
        saver = SaverProcess(partial(open_saver, directory), print, wants=bool, timeout=600.0)
        ready(saver)
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        threading.Thread(target=saver.save, args=(("hang",),), daemon=True).start()
        wait_until((directory / "hangs").exists)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(worker, 0)  # and not for the child of another test


def test_one_whose_worker_was_killed_ends_whatever_it_does(tmp_path):
    worker_with_a_hanging_saver(tmp_path)
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_alive(pid))
    assert (tmp_path / "hangs").exists()
