"""Requests whose messages come back because their process or worker died."""

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import celery
import pytest
from billiard.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery import Celery
from celery.exceptions import Ignore, Reject, Retry, TaskRevokedError
from celery.worker.request import Request
from celery.worker.state import revoked
from kombu.asynchronous.semaphore import LaxBoundedSemaphore
from support.factories import attempt, delivery
from support.workers.parent_requests import einfo

from celery_dlq import DLQTask, Reason
from celery_dlq.errors import PoisonMessage
from celery_dlq.model.fingerprint import Grounds
from celery_dlq.worker.admission.deliveries import GIVEN_BACK
from celery_dlq.worker.body.ending import RunEnd
from celery_dlq.worker.body.report import report
from celery_dlq.worker.end import fate
from celery_dlq.worker.failure import failure_after

AN_HOUR_AGO = datetime.now(timezone.utc) - timedelta(hours=1)


@pytest.fixture(autouse=True)
def _store(desk, own_store, app):
    app.tasks["shop.charge"].acks_late = True
    desk.store = own_store


@pytest.fixture
def pool(app):
    """A worker's pool; what it was given."""
    given = []
    consumer = SimpleNamespace(controller=None, timer=None)
    app.dead_letter_queue.capture.isolation.join(consumer, given.append)
    return SimpleNamespace(apply_async=lambda *_, **options: given.append(options), given=given)


def died_before(store, numbers):
    """Store recent deliveries of the message that did not end; old ones do not count."""
    found = [
        delivery(
            "4711", number=number, alone=alone, started_at=AN_HOUR_AGO + timedelta(minutes=number)
        )
        for number, alone in numbers.items()
    ]
    for one in found:
        store.deliveries.put(one)
    return [one.started_at for one in found]


def deliver(make, desk, pool, **options):
    request = make(pool=pool, redelivered=True, **options)
    request.execute_using_pool(pool)
    desk.release()
    return request


def test_a_first_delivery_is_not_counted(make, desk, pool):
    make(pool=pool).execute_using_pool(pool)
    assert len(pool.given) == 1
    assert desk.waiting == []


def test_what_came_back_runs_after_it_was_written_down(make, desk, pool):
    request = make(pool=pool, redelivered=True)
    request.execute_using_pool(pool)
    assert pool.given == []
    desk.release()
    [given] = pool.given
    assert given["correlation_id"] == "4711"
    assert [item.number for item in desk.store.deliveries.find("4711", "shop.charge")] == [2]


def test_its_process_died_three_times(make, desk, pool):
    first = make(pool=pool)
    first.on_failure(einfo(WorkerLostError("signal 11 (SIGSEGV)")))
    desk.release()
    second = deliver(make, desk, pool)
    second.on_failure(einfo(WorkerLostError("signal 11 (SIGSEGV)")))
    desk.release()
    assert (first.done, second.done, desk.records) == (["reject True"], ["reject True"], [])
    third = deliver(make, desk, pool)
    third.on_failure(einfo(WorkerLostError("signal 11 (SIGSEGV)")))
    desk.release()
    [letter] = desk.records
    assert letter.reason is Reason.POISON
    assert (letter.exception_type, letter.message) == (
        "billiard.exceptions.WorkerLostError",
        "signal 11 (SIGSEGV)",
    )
    assert [attempt.number for attempt in letter.attempts] == [1, 1, 1]
    assert "delivery 1 started" in letter.explanation.evidence
    assert third.done == ["ack"]
    result = third.task.backend.get_task_meta("4711")
    assert (result["status"], type(result["result"])) == ("FAILURE", PoisonMessage)


def test_its_worker_died_each_time(make, desk, pool):
    started_at = died_before(desk.store, {2: False, 3: True})
    request = deliver(make, desk, pool)
    desk.release()
    assert pool.given == [], "not run again"
    [letter] = desk.records
    assert (letter.reason, letter.exception_type) == (
        Reason.POISON,
        "celery_dlq.errors.PoisonMessage",
    )
    assert [attempt.failed_at for attempt in letter.attempts] == started_at
    assert (letter.worker, letter.pid) == ("celery@host", 4711)
    assert letter.explanation.evidence.endswith("on celery@host alone: its worker died")
    assert request.done == ["ack"]


@pytest.mark.skipif(celery.VERSION < (5, 7), reason="acks_on_timeout is of Celery 5.7")
@pytest.mark.parametrize("announces", ["failure and time-out", "time-out only"])
def test_a_time_limit_that_requeues_is_bounded_too(make, desk, app, pool, announces):
    app.tasks["shop.charge"].acks_on_timeout = False
    fates = []
    for turn in range(3):
        request = deliver(make, desk, pool) if turn else make(pool=pool)
        if announces == "failure and time-out":
            request.on_failure(einfo(TimeLimitExceeded(5)))
        request.on_timeout(soft=False, timeout=5)
        desk.release()
        fates += request.done
    assert fates == ["reject True", "reject True", "ack"]
    assert [letter.reason for letter in desk.records] == [Reason.TIMEOUT]


@pytest.mark.parametrize(
    ("exc", "done"),
    [
        (Retry("later", exc=KeyError()), ["ack"]),
        (Ignore(), ["ack"]),
        (Terminated(15), ["reject True"]),
    ],
)
def test_a_run_that_ended_is_forgotten_before_its_message_moves(make, desk, pool, exc, done):
    request = deliver(make, desk, pool)
    request.on_failure(einfo(exc))
    assert request.done == []
    desk.release()
    assert request.done == done
    assert desk.store.deliveries.find("4711", "shop.charge") == ()


@pytest.mark.parametrize("comes_back", [True, False], ids=["marked", "unmarked"])
def test_a_message_that_its_own_code_gives_back_is_stopped(make, desk, pool, comes_back):
    """Some brokers do not mark such a message as delivered before."""
    most, fates = GIVEN_BACK * 3, []
    for turn in range(most):
        request = deliver(make, desk, pool) if turn and comes_back else make(pool=pool)
        request.on_failure(einfo(Reject("not mine", requeue=True)))
        desk.release()
        fates += request.done
        assert len(desk.store.deliveries.find("4711", "shop.charge")) == 1
    assert fates == [*["reject True"] * (most - 1), "reject False"]
    [letter] = desk.records
    assert (letter.reason, len(letter.attempts)) == (Reason.REJECTED, 1)
    evidence = letter.explanation.evidence
    assert f"delivery {most} started" in evidence
    assert evidence.endswith("given back by its task: Reject: ('not mine', True)")


def test_its_letter_has_the_error_for_which_on_failure_gives_it_back(make, desk, pool):
    desk.store.deliveries.put(
        delivery("4711", number=GIVEN_BACK * 3 - 1, death="given back by its task: Reject")
    )
    request = make(pool=pool)
    given_back = einfo(Reject("not mine", requeue=True))
    last = attempt(message="bad currency", rule="default")
    failed = failure_after((last,), Reason.TERMINAL, traceback="", grounds=Grounds())
    report(given_back, RunEnd(failure=failed))
    request.on_failure(given_back)
    desk.release()
    [letter] = desk.records
    assert (letter.reason, letter.message) == (Reason.TERMINAL, "bad currency")


def test_deaths_and_runs_that_gave_it_back_are_counted_by_themselves(make, desk, pool):
    for _ in range(5):
        request = make(pool=pool)
        request.on_failure(einfo(Reject(requeue=True)))
        desk.release()
    for exc in (WorkerLostError("signal 9"), Reject(requeue=True)):
        request = deliver(make, desk, pool)
        request.on_failure(einfo(exc))
        desk.release()
        assert request.done == ["reject True"]
    assert desk.records == []
    last = deliver(make, desk, pool)
    last.on_failure(einfo(WorkerLostError("signal 9")))
    desk.release()
    assert [letter.reason for letter in desk.records] == [Reason.POISON]


def test_revoked_while_it_waited(make, desk, pool):
    request = make(pool=pool, redelivered=True)
    request.execute_using_pool(pool)
    revoked.add("4711")
    desk.release()
    assert (pool.given, request.done) == ([], ["ack"])
    assert desk.store.deliveries.find("4711", "shop.charge") == ()
    with pytest.raises(TaskRevokedError):
        make(pool=pool, redelivered=True).execute_using_pool(pool)


def test_more_condemned_than_slots_leave_the_slots_free(make, desk, app):
    slots = LaxBoundedSemaphore(2)
    controller = SimpleNamespace(_quick_release=slots.release)
    given = []
    consumer = SimpleNamespace(controller=controller, timer=None)
    app.dead_letter_queue.capture.isolation.join(consumer, given.append)
    pool = SimpleNamespace(apply_async=lambda *_, **options: given.append(options))
    died_before(desk.store, {3: True, 4: True})
    for _ in range(5):
        condemned = make(pool=pool, redelivered=True)
        slots.acquire(condemned.execute_using_pool, pool)
    while desk.waiting:
        desk.release()
    assert (len(desk.records), given, slots.value) == (5, [], 2)


def test_without_the_store_the_worker_counts_by_itself(make, desk, pool):
    desk.store, store = None, desk.store
    fates = []
    for turn in range(3):
        request = make(pool=pool, redelivered=turn > 0)
        request.on_failure(einfo(WorkerLostError("signal 9")))
        desk.release()
        fates += request.done
    desk.store = store
    assert fates == ["reject True", "reject True", "ack"]
    [letter] = desk.records
    assert (letter.reason, len(letter.attempts)) == (Reason.POISON, 3)


@pytest.mark.parametrize(("said", "rejects"), [(None, True), (False, False), (True, True)])
def test_reject_on_worker_lost_is_the_default_and_no_more(said, rejects):
    app = Celery("unit", broker="memory://", set_as_current=False)
    if said is not None:
        app.conf.task_reject_on_worker_lost = said

    def charge(): ...

    by_config = app.task(base=DLQTask, name="a", shared=False)(charge)
    by_task = app.task(base=DLQTask, name="b", reject_on_worker_lost=False, shared=False)(charge)
    app.finalize()
    assert by_config.reject_on_worker_lost is rejects
    assert by_task.reject_on_worker_lost is False


@pytest.mark.parametrize(("since_5_7", "done"), [(True, "ack"), (False, "reject True")])
def test_a_success_that_celery_does_not_look_for_is_given_back_and_counted(
    make, desk, pool, monkeypatch, since_5_7, done
):
    if since_5_7 and not hasattr(Request, "_success_was_stored"):
        pytest.skip("this Celery does not look for it")
    monkeypatch.setattr(fate, "_SUCCESS_IS_KEPT", since_5_7)
    request = make(pool=pool)
    request.task.backend.store_result("4711", "done", "SUCCESS")
    if not since_5_7:
        monkeypatch.setattr(Request, "_success_was_stored", lambda self: False, raising=False)
    request.on_failure(einfo(WorkerLostError("signal 9")))
    desk.release()
    assert request.done == [done]
    assert len(desk.store.deliveries.find("4711", "shop.charge")) == (0 if since_5_7 else 1)
