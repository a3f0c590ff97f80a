"""The last results of a pool that stops. The processes are pipes here; real ones are in tests/integration."""

import os
from types import SimpleNamespace

import pytest
from billiard.pool import RUN, TERMINATE, WorkersJoined

from celery_dlq.worker.celery_quirks.pools import read_last_results


class Counter:
    """Counts results; whoever takes the lock waits for ever."""

    def __init__(self):
        self.shared = SimpleNamespace(value=3)

    def get_obj(self):
        return self.shared


class Handler:
    """Celery's, as far as it is used: a process ends when its two messages are read."""

    _state = RUN

    def __init__(self):
        self.pipes = [os.pipe(), os.pipe()]
        self.fileno_to_outq = {read: read for read, _ in self.pipes}
        self.on_ready_counters = {1: Counter(), 2: Counter()}
        self.on_state_change, self.stopped, self.read = print, 0, []
        for _, write in self.pipes:
            os.write(write, b"ab")

    def on_stop_not_started(self):
        self.stopped += 1

    def join_exited_workers(self, *, shutdown):
        assert shutdown
        if len(self.read) == 4:
            raise WorkersJoined

    def _flush_outqueue(self, fd, remove, process_index, on_state_change):
        assert (process_index, on_state_change) == (self.fileno_to_outq, print)
        self.read.append((fd, os.read(fd, 1)))

    def close(self):
        for fds in self.pipes:
            for fd in fds:
                os.close(fd)


@pytest.fixture
def handler():
    handler = Handler()
    yield handler
    handler.close()


def pool_of(handler):
    return SimpleNamespace(_pool=SimpleNamespace(_result_handler=handler))


def test_they_are_read_until_all_processes_have_ended(handler):
    read_last_results(pool_of(handler))
    read_last_results(pool_of(handler))  # after a lost connection
    handler.on_stop_not_started()
    assert handler.stopped == 1, "Celery does its part first"
    assert sorted(read for _, read in handler.read) == [b"a", b"a", b"b", b"b"]


def test_no_process_waits_for_its_results_to_be_counted(handler):
    read_last_results(pool_of(handler))
    handler.on_stop_not_started()
    assert all(counter.shared.value > 10**9 for counter in handler.on_ready_counters.values())


def test_what_is_closed_is_not_read_again(handler):
    first = handler.pipes[0][0]
    read = handler._flush_outqueue

    def flush(fd, remove, *args):
        if fd == first:
            remove(fd)
            handler.read.append((fd, b"end"))
            handler.read.append((fd, b""))
        else:
            read(fd, remove, *args)

    handler._flush_outqueue = flush
    read_last_results(pool_of(handler))
    handler.on_stop_not_started()
    assert sum(fd == first for fd, _ in handler.read) == 2


def test_a_pool_that_is_terminated_is_left_alone(handler):
    handler._state = TERMINATE
    read_last_results(pool_of(handler))
    handler.on_stop_not_started()
    assert handler.read == []


def test_an_error_does_not_end_the_worker(handler, caplog):
    handler.join_exited_workers = None
    read_last_results(pool_of(handler))
    handler.on_stop_not_started()
    assert "could not read the last results" in caplog.text


@pytest.mark.parametrize(
    "pool", [None, SimpleNamespace(), pool_of(None), pool_of(SimpleNamespace())]
)
def test_other_pools_are_as_they_are(pool):
    before = repr(pool)
    read_last_results(pool)
    assert repr(pool) == before
