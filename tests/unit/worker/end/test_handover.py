"""A request that the pool cannot take is a letter, and all that was kept for it is given back."""

import functools
import pickle
import struct
import threading
from datetime import datetime, timedelta, timezone
from functools import partial
from types import SimpleNamespace

import pytest
from billiard.pool import ApplyResult
from celery.concurrency import solo, thread
from celery.exceptions import InvalidTaskError, TaskRevokedError
from celery.worker import state
from celery.worker.request import Request
from celery.worker.worker import WorkController
from kombu.asynchronous.semaphore import LaxBoundedSemaphore
from support.factories import delivery
from support.workers.parent_requests import Message, Ticks, charging_app

from celery_dlq import Reason
from celery_dlq.errors import PoolFailed
from celery_dlq.worker.admission import Admission
from celery_dlq.worker.admission.isolation import IsolatedRun
from celery_dlq.worker.end import handover
from celery_dlq.worker.end.closing import Probe
from celery_dlq.worker.end.handover import HandOver


class Prefork:
    """A pool that pickles what it is given, as Celery's does, after it has noted the job."""

    uses_semaphore, active = True, True

    def __init__(self):
        self.fails, self.sent = None, []
        self._pool = SimpleNamespace(_cache={})

    def apply_async(self, target, args, callback, accept_callback, **options):
        result = ApplyResult(self._pool._cache, callback, accept_callback)
        if self.fails:
            raise self.fails
        self.sent.append(pickle.dumps((result._job, args)))
        return result


class Worker(Ticks):
    """Celery's WorkController and its consumer, as far as a request passes them."""

    _process_task = WorkController._process_task
    _process_task_sem = WorkController._process_task_sem

    def __init__(self, pool):
        super().__init__()
        self.pool, self.controller, self.timer = pool, self, self
        self.semaphore = LaxBoundedSemaphore(2)
        self._quick_acquire, self._quick_release = self.semaphore.acquire, self.semaphore.release
        self.on_task_request = (
            self._process_task_sem if getattr(pool, "uses_semaphore", False) else self._process_task
        )
        self.refused = []

    def join(self):
        handover = HandOver(self, lambda *refused: self.refused.append(refused))
        self.on_task_request = handover.join()

    def receive(self, request):
        state.task_reserved(request)
        self.on_task_request(request)


@pytest.fixture(params=["early", "late"])
def app(request):
    app = charging_app()
    app.tasks["shop.charge"].acks_late = request.param == "late"
    return app


@pytest.fixture
def desk(desk, own_store):
    desk.store = own_store
    return desk


@pytest.fixture
def worker(app):
    worker = Worker(Prefork())
    worker.join()
    isolation = app.dead_letter_queue.capture.isolation
    Admission([isolation]).join(worker, worker.on_task_request)
    return worker


@functools.cache
def deep(levels=200_000):
    """Lists in lists. They are made once, because the garbage collector walks through each."""
    value = []
    for _ in range(levels):
        value = [value]
    return value


def assert_nothing_is_kept(worker, request):
    assert worker.semaphore.value == worker.semaphore.initial_value, "its slot"
    assert worker.pool._pool._cache == {}, "its job, for which a shutdown would wait"
    assert request not in state.reserved_requests
    assert request.done == ["ack"]


def test_arguments_that_nest_too_deeply_to_be_pickled_are_a_letter(make, desk, worker):
    request = make(pool=worker.pool, payload=([deep()], {}, {}))
    worker.receive(request)
    assert (request.done, worker.semaphore.value) == ([], 2), "acknowledged when the letter is safe"
    [letter] = desk.records
    assert (letter.reason, letter.explanation.rule) == (Reason.MALFORMED, handover.RULE)
    assert letter.message.startswith("the pool cannot take it: RecursionError: ")
    assert "RecursionError" in letter.traceback
    assert letter.envelope.body == request.message.body
    desk.release()
    assert_nothing_is_kept(worker, request)
    stored = request.task.backend.get_task_meta("4711")
    assert (stored["status"], type(stored["result"])) == ("FAILURE", InvalidTaskError)
    assert len(desk.records) == 1


FAILURES = [
    MemoryError("64 GB"), RecursionError("deep"), struct.error("larger than 4 GB"),
    pickle.PicklingError("no"), TypeError("a lock"), OSError("broken pipe"), RuntimeError("changed size"),
]  # fmt: skip


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_whatever_fails_on_the_way_to_a_process_is_a_letter(make, desk, worker, failure):
    worker.pool.fails = failure
    request = make(pool=worker.pool)
    worker.receive(request)
    desk.release()
    [letter] = desk.records
    assert letter.message == f"the pool cannot take it: {type(failure).__name__}: {failure}"
    assert_nothing_is_kept(worker, request)


def test_a_header_that_cannot_be_pickled(make, desk, worker):
    request = make(pool=worker.pool, strange=threading.Lock())
    worker.receive(request)
    desk.release()
    assert "TypeError: cannot pickle" in desk.records[0].message
    assert_nothing_is_kept(worker, request)


def test_the_next_request_takes_the_slot(make, desk, worker):
    for number in range(5):
        worker.receive(make(pool=worker.pool, payload=([deep()], {}, {}), id=str(number)))
    desk.release()
    worker.receive(make(pool=worker.pool, id="good"))
    assert len(worker.pool.sent) == 1
    assert len(desk.records) == 5


def test_one_that_came_back_and_ran_alone_lets_the_others_in_again(app, make, desk, worker):
    """The broker delivers it again where a worker had died of it, before."""
    now = datetime.now(timezone.utc)  # old deliveries do not count
    for number in (2, 3):
        at = now - timedelta(minutes=9 - number)
        desk.store.deliveries.put(delivery("4711", number=number, started_at=at))
    request = make(pool=worker.pool, redelivered=True, payload=([deep()], {}, {}))
    worker.receive(request)
    desk.release()
    waits = make(pool=worker.pool, id="behind")
    worker.receive(waits)
    desk.release()
    [letter] = desk.records
    assert letter.explanation.rule == handover.RULE
    assert_nothing_is_kept(worker, request)
    worker.tick()
    assert len(worker.pool.sent) == 1, "the one behind it runs"
    assert app.dead_letter_queue.capture.isolation._isolation is None


def test_one_that_came_back_and_is_written_down_is_not_counted_after_its_letter(make, desk, worker):
    request = make(pool=worker.pool, redelivered=True, payload=([deep()], {}, {}))
    worker.receive(request)
    desk.release()
    [letter] = desk.records
    desk.store.letters.save([letter])
    assert desk.store.deliveries.find("4711", "shop.charge") == ()


def test_a_probe_of_a_circuit_is_given_back(app, make, desk, worker):
    ended = []
    app.dead_letter_queue.capture.__dict__["valve"] = SimpleNamespace(
        note=lambda _: None, make_room=lambda then: then,
        ended=lambda request, verdict: ended.append((request.dlq_probe, verdict)),
    )  # fmt: skip
    request = make(pool=worker.pool, payload=([deep()], {}, {}))
    request.dlq_probe = Probe(("shop.charge", ""), "token")
    worker.receive(request)
    desk.release()
    assert ended == [(request.dlq_probe, None)], "which says nothing about what the task needs"


def test_a_revoked_request_frees_its_slot_as_ever(make, desk, worker):
    request = make(pool=worker.pool)
    state.revoked.add(request.id)
    worker.receive(request)
    assert (desk.records, request.done, worker.semaphore.value) == ([], ["ack"], 2)


def test_a_pool_that_shuts_down_takes_nothing_and_the_message_goes_back(make, desk, worker):
    worker.pool.active, worker.pool.fails = False, RuntimeError("closed")
    request = make(pool=worker.pool)
    with pytest.raises(PoolFailed, match="takes no tasks: closed; restart"):
        worker.receive(request)
    assert (desk.records, request.done) == ([], [])


def test_an_executor_that_starts_no_thread_is_no_fault_of_the_message(make, desk, monkeypatch):
    """It has queued the request, and ends with the worker: the broker delivers it again."""
    worker = Worker(thread.TaskPool(1))
    worker.pool.start()
    worker.join()
    monkeypatch.setattr(threading.Thread, "start", _no_thread)
    request = make(pool=worker.pool)
    with pytest.raises(PoolFailed, match="can't start new thread"):
        worker.receive(request)
    assert (desk.records, request.done) == ([], [])


def _no_thread(self):
    raise RuntimeError("can't start new thread")


def test_a_request_that_has_started_is_not_refused(make, desk, worker):
    worker.pool.fails = ValueError("later")
    request = make(pool=worker.pool)
    request.time_start = 1.0
    with pytest.raises(ValueError, match="later"):
        worker.receive(request)
    assert desk.records == []


def test_a_task_that_is_not_on_dlqtask_is_told_to_others(app, worker):
    message = Message("celery.ping" if "celery.ping" in app.tasks else "celery.map")
    message.payload = ([deep()], {}, {})
    request = Request(message, app=app, on_ack=lambda *_: None)
    worker.receive(request)
    [(refused, error)] = worker.refused
    assert refused is request
    assert isinstance(error.__cause__, RecursionError)
    assert worker.semaphore.value == 2


@pytest.mark.parametrize("kind", [solo, thread], ids=["solo", "threads"])
@pytest.mark.parametrize("failure", [RecursionError("decoding"), MemoryError()])
def test_an_error_outside_the_body_reaches_the_request_in_pools_without_processes(
    make, desk, kind, failure
):
    request = _traced(make, kind.TaskPool(1), failure)
    desk.release()
    [letter] = desk.records
    assert letter.task_id == "4711"
    assert request.done == ["ack"]
    assert request.task.backend.get_task_meta("4711")["status"] == "FAILURE"


@pytest.mark.parametrize("kind", [solo, thread], ids=["solo", "threads"])
def test_an_exit_outside_the_body_counts_as_the_death_of_its_process(app, make, desk, kind):
    """Celery itself tells the request of it as of a result, and fails."""
    request = _traced(make, kind.TaskPool(1), SystemExit(3))
    desk.release()
    is_late = app.tasks["shop.charge"].acks_late
    assert request.done == (["reject True"] if is_late else ["ack"])
    assert [letter.reason for letter in desk.records] == ([] if is_late else [Reason.POISON])


def _traced(make, pool, failure):
    """A request that has passed a pool, where its tracer failed."""

    def trace(*args):
        raise failure

    worker = Worker(pool)
    worker.join()
    pool.start()
    request = make(pool=SimpleNamespace(apply_async=partial(_with_target, pool, trace)))
    worker.receive(request)
    pool.stop()
    return request


def _with_target(pool, target, _, **options):
    return pool.apply_async(target, **options)


@pytest.mark.parametrize("kind", [solo, thread], ids=["solo", "threads"])
def test_a_request_that_fails_to_be_accepted_does_not_run_in_pools_without_processes(
    make, desk, monkeypatch, kind
):
    """In Celery, a thread loses the error with the message unsettled."""
    ran = []
    monkeypatch.setattr("celery.worker.request.task_accepted", _unhashable)
    pool = kind.TaskPool(1)
    worker = Worker(pool)
    worker.join()
    pool.start()
    traced = partial(_with_target, pool, lambda *_: ran.append("ran"))
    request = make(pool=SimpleNamespace(apply_async=traced))
    worker.receive(request)
    pool.stop()
    desk.release()
    [letter] = desk.records
    assert letter.message == "the pool cannot take it: TypeError: unhashable type: 'list'"
    assert (request.done, ran) == (["ack"], [])


def _unhashable(request):
    raise TypeError("unhashable type: 'list'")


def test_what_a_body_returns_reaches_the_request_in_pools_without_processes(make, desk):
    pool = solo.TaskPool(1)
    worker = Worker(pool)
    worker.join()
    pool.start()
    request = make(
        pool=SimpleNamespace(apply_async=partial(_with_target, pool, lambda *_: (0, "1", 0.1)))
    )
    worker.receive(request)
    assert (request.done, desk.records) == (["ack"], [])
    assert request not in state.reserved_requests


def test_an_isolated_run_frees_the_slot_of_the_same_worker(worker):
    alone = IsolatedRun()
    alone.join(worker, worker.on_task_request)
    worker.semaphore.acquire(lambda: None)
    alone.give_slot_back()
    assert worker.semaphore.value == 2


#: More than Python's stack has room for, if each of them calls the next one.
WAITING = 2_000


class Waiting:
    """A request that waits for a slot, and does not use it."""

    id, time_start, refused, _apply_result = "waiting", None, False, None

    def __init__(self, use):
        self.execute_using_pool = lambda pool: use(self)

    def refuse(self, error):
        self.refused = True


def raises(exc):
    def use(request):
        raise exc

    return use


@pytest.mark.parametrize(
    "exc", [TaskRevokedError("waiting"), OSError("broken pipe")], ids=["revoked", "refused"]
)
def test_thousands_that_the_pool_does_not_get_leave_the_slots_free(worker, exc):
    running = [Waiting(lambda request: None) for _ in range(2)]
    waiting = [Waiting(raises(exc)) for _ in range(WAITING)]
    for request in running + waiting:
        worker.receive(request)
    worker.semaphore.release()
    assert worker.semaphore.value == 1
    assert {request.refused for request in waiting} == {isinstance(exc, OSError)}


def test_thousands_that_wait_while_one_is_alone_run_afterwards(worker, app, caplog):
    isolation, started = app.dead_letter_queue.capture.isolation, []

    def use(request):
        if not isolation.keeps_out(request):
            started.append(request)

    alone, other = Waiting(lambda request: None), Waiting(lambda request: None)
    waiting = [Waiting(use) for _ in range(WAITING)]
    for request in [alone, other, *waiting]:
        worker.receive(request)
    isolation.enter(alone, lambda is_alone: None, lambda then: None)
    worker.semaphore.release()  # the other one has ended
    assert started == []
    state.task_ready(alone)
    worker.semaphore.release()
    worker.tick()
    while len(started) < WAITING:
        worker.semaphore.release()
    assert (started, caplog.messages) == (waiting, [])
