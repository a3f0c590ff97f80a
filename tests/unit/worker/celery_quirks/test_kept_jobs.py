"""The jobs that a pool keeps when its consumer closes. Celery's own ``flush`` runs here, on a pool without
processes; real ones are in tests/integration."""

from collections import deque
from types import SimpleNamespace

import pytest
from billiard.pool import CLOSE, RUN, ApplyResult
from celery.concurrency.asynpool import AsynPool

from celery_dlq.worker.celery_quirks.pools import keep_jobs


class Process:
    """One of a pool, which takes a byte of what is written to it at a time."""

    inqW_fd = 7

    def __init__(self):
        self.read = b""

    def _is_alive(self):
        return True


class Pool(AsynPool):
    """Celery's, without processes."""

    def __init__(self):
        self._state, self.synack, self._cache = RUN, False, {}
        self.outbound_buffer, self._busy_workers = deque(), set()
        self._active_writes, self._active_writers = set(), set()

    def __del__(self):
        pass

    def maintain_pool(self):
        pass

    def _flush_writer(self, proc, writer):
        for _ in writer:
            pass

    def job(self, process=None, *, waits=False):
        """A job that ``process`` has, or that waits for one."""
        job = ApplyResult(self._cache, None)
        job._write_to = process
        if waits:
            self.outbound_buffer.append(job)
        return job


@pytest.fixture(params=[RUN, CLOSE], ids=["lost connection", "shutdown"])
def pool(request):
    pool = Pool()
    pool.outer = SimpleNamespace(_pool=pool, flush=pool.flush)
    keep_jobs(pool.outer)
    pool._state = request.param
    return pool


def test_the_jobs_that_processes_have_are_kept(pool):
    handed, begun = pool.job(Process()), pool.job(Process())
    begun._ack(None, 0.0, 1, None)
    pool.outer.flush()
    assert {handed._job, begun._job} <= pool._cache.keys()


def test_a_job_that_ends_in_the_meantime_is_not_kept(pool):
    job = pool.job(Process())
    pool.maintain_pool = lambda: job._set(None, (True, 1))
    pool.outer.flush()
    assert job._job not in pool._cache


def test_a_job_that_no_process_has_is_given_up(pool):
    new, given_up = pool.job(waits=True), pool.job(Process(), waits=True)
    pool.outer.flush()
    assert not pool.outbound_buffer
    assert not new._accepted
    assert not given_up._accepted, "the process that had it has ended"


def test_a_job_that_is_partly_written_is_written_to_its_end(pool):
    process = Process()
    job = pool.job(process)

    def write():
        for byte in b"a job":
            process.read += bytes([byte])
            yield

    writer = write()
    job._writer = lambda: writer
    next(writer)
    pool.outer.flush()
    assert process.read == b"a job"
    assert job._job in pool._cache


def test_the_method_is_replaced_once(pool):
    flush = pool.outer.flush
    keep_jobs(pool.outer)  # after a lost connection
    assert pool.outer.flush is flush


def test_an_error_keeps_neither_celery_nor_other_jobs(pool, caplog, monkeypatch):
    monkeypatch.setattr(pool, "_flush_writer", None)
    pool.job(Process())._writer = lambda: iter(())
    other = pool.job(Process())
    pool.job(waits=True)
    pool.outer.flush()
    assert not pool.outbound_buffer
    assert other._job in pool._cache
    assert "could not keep a job" in caplog.text


@pytest.mark.parametrize("other", [None, SimpleNamespace(), SimpleNamespace(_pool=None)])
def test_other_pools_are_as_they_are(other):
    before = repr(other)
    keep_jobs(other)
    assert repr(other) == before
