"""The life of operations: made, left to workers, resumed, moved."""

import contextlib
import threading
from datetime import timedelta
from unittest.mock import Mock

import pytest
from celery import Celery
from sqlalchemy import func, select, update
from support.factories import T0

from celery_dlq import Filter, Settings
from celery_dlq.base.redact import Redactor
from celery_dlq.base.sealing import Keyring
from celery_dlq.errors import (
    ContentsSealed,
    OperationError,
    OrdersError,
    StoreUnavailable,
    UnknownOperation,
)
from celery_dlq.model.operation import OperationState, Orders, Pacing, Repair
from celery_dlq.model.states import State
from celery_dlq.redrive import operation as module
from celery_dlq.redrive.broker.message import Sent
from celery_dlq.redrive.context import RedriveContext
from celery_dlq.redrive.letter import repair
from celery_dlq.redrive.operation import Operations
from celery_dlq.store import tenure
from celery_dlq.store.database.tables import content


@pytest.fixture
def another(app, store, time):
    """Another process's operations."""
    return operations_of(app, store, time)


@pytest.fixture
def third(app, store, time):
    """A third process's operations."""
    return operations_of(app, store, time)


def operations_of(app, store, time):
    context = RedriveContext(
        app=app, store=store, settings=Settings(), redactor=Redactor(()),
        reports=lambda _: True, clock=time.clock,
    )  # fmt: skip
    return Operations(context)


@pytest.fixture
def lacking(operations, fill):
    """Left to a worker that lacks its repair."""
    fill("a")
    plan = operations.plan(Filter(), Orders())
    orders = Orders(repair=Repair(function="euros"))
    return operations.make(Filter(), orders, who="tester", detached=True, plan=plan)


def never():
    return False


def test_an_operation_is_stored_with_its_orders(operations, make, fill, time):
    fill(*"abc")
    made = make(Filter(task="charge"), limit=2, rate=5.0)
    found = operations.get(made.id)
    assert (found.state, found.counts.planned, found.who) == (OperationState.PLANNED, 2, "tester")
    assert found.orders.pacing == Pacing(limit=2, rate=5.0)
    assert (found.wanted.task, found.wanted.until) == ("charge", time.now)
    assert len(found.id) == 12


def test_an_earlier_bound_than_now_stands(make):
    until = T0 + timedelta(minutes=1)
    assert make(Filter(until=until)).wanted.until == until


@pytest.mark.parametrize(
    ("pacing", "says"),
    [
        ({"canary": 4}, "canary of 4 is more than the 3 letters"),
        ({"canary": 3, "limit": 2}, "canary of 3 is more than the 2 letters"),
        ({"rate": 0.0}, "rate must be above zero"),
    ],
)
def test_orders_that_make_no_sense_make_nothing(store, make, fill, pacing, says):
    fill(*"abc")
    with pytest.raises(OrdersError, match=says):
        make(**pacing)
    assert store.operations.find() == []


def test_a_canary_needs_tasks_that_report_outcomes(make, fill, silent):
    silent.add("shop.charge")
    fill("a")
    with pytest.raises(OrdersError, match="charge are not"):
        make(canary=1)


def test_a_filter_that_finds_nothing_is_done_at_once(make, resume):
    assert resume(make(canary=5)).state is OperationState.DONE


def test_what_was_paused_goes_on_where_it_was(publisher, operations, make, resume, fill):
    fill(*"abcde")
    paused = resume(make(), should_stop=lambda: bool(publisher.batches))
    assert (paused.state, paused.cause) == (OperationState.PAUSED, "stopped on request")
    done = resume(paused)
    assert (done.state, done.counts.out) == (OperationState.DONE, 5)
    assert publisher.sent == list("abcde")


def test_a_limit_holds_over_all_runs(publisher, make, resume, fill):
    fill(*"abcdef")
    publisher.answers[1] = Sent(confirmed=["a"], uncertain=["b"])
    paused = resume(make(limit=3))
    assert paused.counts.left == 2
    done = resume(paused)
    assert (done.state, done.counts.out) == (OperationState.DONE, 3)
    assert publisher.sent == ["a", "b", "b", "c"]


def test_an_ended_operation_cannot_be_resumed(operations, make, resume, fill):
    fill("a")
    done = resume(make())
    with pytest.raises(OperationError, match="done"):
        resume(done)
    with pytest.raises(OperationError):
        operations.cancel(done.id, who="tester")


def test_an_id_that_was_never_made_is_unknown(operations):
    for act in (operations.pause, operations.cancel, operations.resume):
        with pytest.raises(UnknownOperation):
            act("0123456789ab", who="tester")
    with pytest.raises(UnknownOperation):
        operations.get("0123456789ab")


def test_two_processes_do_not_run_the_same(publisher, another, make, resume, fill):
    fill(*"abcd")
    refused = []

    def meanwhile(letters):
        with pytest.raises(OperationError, match="Another process runs"):
            another.resume(made.id, who="x", on_progress=print, should_stop=never)
        refused.append(another.carry_on(made.id, never))

    publisher.before = meanwhile
    made = make()
    assert resume(made).counts.out == 4
    assert refused == [None, None]


def test_a_process_that_stood_still_for_longer_than_its_lease_continues(
    publisher, redrive, fill, monkeypatch
):
    """As a machine that was suspended does, if no other process took the operation over."""
    monkeypatch.setattr(tenure, "LEASE_S", -1.0)
    monkeypatch.setattr(tenure, "TRY_S", 0.001)
    prolonged, prolong = threading.Semaphore(0), tenure.Tenure.prolong

    def counted(self):
        lease = prolong(self)
        prolonged.release()
        return lease

    monkeypatch.setattr(tenure.Tenure, "prolong", counted)
    publisher.before = lambda _letters: [prolonged.acquire(timeout=60) for _ in range(3)]
    fill(*"abcdef")
    assert redrive().state is OperationState.DONE
    assert publisher.sent == [*"abcdef"]


def test_an_operation_that_is_paused_before_it_begins_stays_so(operations, make, fill, monkeypatch):
    """Another process has begun it in the meantime."""
    fill("a")
    made = make(detached=True)
    may = operations._may_carry_on

    def meanwhile(operation):
        operations.pause(made.id, who="ann")
        return may(operation)

    monkeypatch.setattr(operations, "_may_carry_on", meanwhile)
    assert operations.carry_on(made.id, never) is None
    assert operations.get(made.id).state is OperationState.PAUSED


def test_two_operations_over_the_same_letters_send_each_once(
    publisher, another, make, resume, fill
):
    fill(*"abcdef")
    first, second = make(), make()

    def run_the_second(letters):
        if len(publisher.batches) == 1:
            publisher.before = lambda _: None
            another.resume(second.id, who="x", on_progress=lambda _: None, should_stop=never)

    publisher.before = run_the_second
    done = resume(first)
    assert done.state is OperationState.DONE
    assert sorted(publisher.sent) == list("abcdef")


class TestLeftToAWorker:
    def test_is_detached_or_has_lost_its_process(self, operations, make, resume, fill):
        fill(*"ab")
        waiting, detached = make(), make(detached=True)
        assert [one.id for one in operations.left()] == [detached.id]
        operations.resume(waiting.id, who="tester", detach=True)
        assert {one.id for one in operations.left()} == {waiting.id, detached.id}

    def test_is_run_to_its_end(self, operations, make, publisher, fill):
        fill(*"abc")
        ended = operations.carry_on(make(detached=True).id, never)
        assert (ended.error, ended.operation.state) == (None, OperationState.DONE)
        assert publisher.sent == list("abc")

    def test_is_not_paused_meanwhile(self, operations, make, fill):
        fill("a")
        made = make(detached=True)
        operations.pause(made.id, who="tester")
        assert operations.carry_on(made.id, never) is None
        assert operations.left() == []

    def test_goes_on_after_trouble(self, operations, make, publisher, fill):
        fill("a")
        publisher.answers[1] = Sent(unsent=["a"], error="reset")
        made = make(detached=True)
        tried = operations.carry_on(made.id, never)
        assert (tried.error, tried.operation.state) == ("reset", OperationState.RUNNING)
        assert operations.carry_on(made.id, never).operation.state is OperationState.DONE

    def test_is_paused_where_it_cannot_be_carried_out(self, operations, lacking):
        """As in the foreground: the cause is seen, and a person resumes it."""
        ended = operations.carry_on(lacking.id, never)
        paused = operations.get(lacking.id)
        assert paused.state is OperationState.PAUSED
        assert (
            "'euros' is not a repair of this app; none exists. Correct the name, or" in paused.cause
        )
        assert (ended.error, ended.operation) == (paused.cause, paused)
        assert operations.left() == []
        operations.resume(lacking.id, who="tester", detach=True)
        assert [one.id for one in operations.left()] == [lacking.id]

    def test_is_not_paused_by_a_process_that_lost_its_lease(self, operations, lacking, monkeypatch):
        lost = contextlib.contextmanager(lambda *_: iter([lambda: False]))
        monkeypatch.setattr(module, "kept", lost)
        operations.carry_on(lacking.id, never)
        assert operations.get(lacking.id).state is OperationState.RUNNING

    def test_is_not_paused_by_an_unavailable_store(
        self, operations, make, store, fill, monkeypatch
    ):
        fill("a")
        made = make(detached=True)
        away = Mock(side_effect=StoreUnavailable)
        monkeypatch.setattr(store.claims, "take", away)
        with pytest.raises(StoreUnavailable):
            operations.carry_on(made.id, never)
        assert operations.get(made.id).state is OperationState.RUNNING

    def test_stays_cancelled_if_cancelled_meanwhile(self, operations, lacking, monkeypatch):
        make_repairs = repair.Repairs

        def meanwhile(*given):
            operations.cancel(lacking.id, who="ann")
            return make_repairs(*given)

        monkeypatch.setattr(repair, "Repairs", meanwhile)
        ended = operations.carry_on(lacking.id, never)
        assert ended.operation.cause == "cancelled by ann"

    def test_goes_on_after_a_shutdown(self, operations, make, publisher, fill):
        fill(*"abcd")
        made = make(detached=True)
        stopped = operations.carry_on(made.id, lambda: bool(publisher.batches))
        assert stopped.operation.state is OperationState.RUNNING
        assert operations.carry_on(made.id, never).operation.counts.out == 4

    def test_is_not_that_of_another_app_on_the_same_store(self, operations, make, fill):
        fill("x", task="far.away")
        make(detached=True)
        assert operations.left() == []
        fill("a")
        [left] = operations.left()
        assert left.counts.planned == 1


def test_the_guard_goes_on_judging_after_a_resume(publisher, worker, make, resume, fill, time):
    fill(*(f"{number:03}" for number in range(60)))
    made = make(batch=10)
    paused = resume(made, should_stop=lambda: len(publisher.batches) >= 2)
    worker.run(fails=lambda _: True)
    time.pass_(1.0)
    ended = resume(paused)
    assert ended.state is OperationState.ABORTED
    assert ended.counts.out <= 40


class TestAppAndBroker:
    """Two apps on one store."""

    @pytest.fixture
    def elsewhere(self, app, store, time):
        """An app with another name and these tasks."""
        other = Celery("bank", broker="memory://", set_as_current=False)
        for name, task in app.tasks.items():
            other.tasks[name] = task
        context = RedriveContext(
            app=other, store=store, settings=Settings(), redactor=Redactor(()),
            reports=lambda _: True, clock=time.clock,
        )  # fmt: skip
        return Operations(context)

    def test_another_app_does_not_carry_it_out(self, operations, make, elsewhere, fill, publisher):
        fill("a")
        made = make(detached=True)
        assert operations.get(made.id).home.app == "unit"
        assert elsewhere.left() == []
        assert elsewhere.carry_on(made.id, never) is None
        with pytest.raises(OperationError, match="made for app unit, and this is bank"):
            elsewhere.resume(made.id, who="tester", on_progress=lambda _: None, should_stop=never)
        assert operations.get(made.id).state is OperationState.PLANNED
        assert [one.id for one in operations.left()] == [made.id]
        assert publisher.sent == []

    def test_it_may_be_cancelled_from_anywhere(self, operations, make, elsewhere, fill):
        fill("a")
        made = make(detached=True)
        assert elsewhere.cancel(made.id, who="tester").state is OperationState.CANCELLED


@pytest.fixture
def ring(store):
    """The keys with which the store seals letters from now on."""
    store.transactions.ring = Keyring({"one": b"k" * 32})
    return store.transactions.ring


def test_letters_without_their_key_are_refused_before_any_is_claimed(
    store, operations, publisher, fill, ring
):
    fill(*"abc")
    made = operations.make(Filter(), Orders(), who="ann", detached=False)
    store.transactions.ring = Keyring({"other": b"x" * 32})
    refused = f"3 letters are encrypted with key {ring.label}"
    with pytest.raises(ContentsSealed, match=refused):
        operations.start(Filter(), who="ann")
    assert [one.id for one in store.operations.find()] == [made.id]
    with pytest.raises(OperationError, match="cannot run here: The key with the hash"):
        operations.resume(made.id, who="ann")
    assert operations.left() == []
    assert publisher.batches == []
    assert {one.redrive_count for one in store.letters.find(Filter()).letters} == {0}
    store.transactions.ring = ring
    assert operations.resume(made.id, who="ann").counts.sent == 3


def test_a_letter_that_was_changed_is_refused_and_the_others_are_sent(
    store, operations, publisher, fill, ring
):
    fill(*"abc")
    first = content.c.id == select(func.min(content.c.id)).scalar_subquery()
    change = update(content).where(first).values(body=b"[[1000], {}, {}]")
    store.database.write(lambda connection: connection.execute(change))
    ended = operations.start(Filter(), who="ann")
    assert (ended.counts.skipped, ended.counts.sent) == (1, 2)
    assert publisher.sent == ["b", "c"]
    assert store.letters.get("a").state is State.DEAD
    [skipped] = store.sendings.of_letter("a")
    assert "it is not encrypted, and the rest is" in skipped.why
