"""Operations as wholes: made, left, carried on, moved."""

import contextlib
import sys
import types
from dataclasses import replace
from datetime import timedelta
from unittest.mock import Mock

import pytest
from celery import Celery
from factories import T0, envelope

from celery_dlq import Filter, Settings
from celery_dlq.errors import (
    FilterError,
    OperationError,
    OrdersError,
    StoreUnavailable,
    UnknownOperation,
)
from celery_dlq.operation import Checking, Guard, OperationState, Orders, Pacing, Repair
from celery_dlq.redact import Redactor
from celery_dlq.redrive import engine
from celery_dlq.redrive import operations as module
from celery_dlq.redrive.means import Means
from celery_dlq.redrive.operations import Operations
from celery_dlq.redrive.plan import redrivable
from celery_dlq.redrive.sent import Sent
from celery_dlq.states import State


@pytest.fixture
def make(operations):
    def make(wanted=Filter(), *, detached=False, **pacing):  # noqa: B008 - a frozen value
        orders = Orders(pacing=Pacing(**pacing))
        return operations.make(wanted, orders, who="tester", detached=detached)

    return make


@pytest.fixture
def resume(operations):
    """Go on here and now."""

    def resume(operation, **options):
        chosen = {"on_progress": lambda _: None, "should_stop": lambda: False, **options}
        return operations.run(operation.id, who="tester", **chosen)

    return resume


@pytest.fixture
def another(app, store, time):
    """Another process's operations."""
    means = Means(
        app=app, store=store, settings=Settings(redrive_batch_size=2), redactor=Redactor(()),
        reports=lambda _: True, clock=time.clock,
    )  # fmt: skip
    return Operations(means)


@pytest.fixture
def lacking(operations, fill):
    """Left to a worker that lacks its transform."""
    fill("a")
    plan = operations.plan(Filter(), Orders())
    orders = Orders(repair=Repair(transform="onlyhere:good"))
    return operations.make(Filter(), orders, who="tester", detached=True, plan=plan)


def never():
    return False


def test_it_is_written_down_with_all_it_was_told(operations, make, fill, time):
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
        ({"ramp_s": 5.0}, "leads up to a rate"),
    ],
)
def test_orders_that_make_no_sense_make_nothing(store, make, fill, pacing, says):
    fill(*"abc")
    with pytest.raises(OrdersError, match=says):
        make(**pacing)
    assert store.operations() == []


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


def test_what_has_ended_does_not_go_on(operations, make, resume, fill):
    fill("a")
    done = resume(make())
    with pytest.raises(OperationError, match="done"):
        resume(done)
    with pytest.raises(OperationError):
        operations.cancel(done.id, who="tester")


def test_one_that_nobody_made_is_unknown(operations):
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
            another.run(made.id, who="x", on_progress=print, should_stop=never)
        refused.append(another.carry_on(made.id, never))

    publisher.before = meanwhile
    made = make()
    assert resume(made).counts.out == 4
    assert refused == [None, None]


def test_two_operations_over_the_same_letters_send_each_once(
    publisher, another, make, resume, fill
):
    fill(*"abcdef")
    first, second = make(), make()

    def run_the_second(letters):
        if len(publisher.batches) == 1:
            publisher.before = lambda _: None
            another.run(second.id, who="x", on_progress=lambda _: None, should_stop=never)

    publisher.before = run_the_second
    done = resume(first)
    assert done.state is OperationState.DONE
    assert sorted(publisher.sent) == list("abcdef")


class TestLeftToAWorker:
    def test_is_what_was_detached_or_lost_its_process(self, operations, make, resume, fill):
        fill(*"ab")
        waiting, detached = make(), make(detached=True)
        assert [one.id for one in operations.left()] == [detached.id]
        operations.resume(waiting.id, who="tester")
        assert {one.id for one in operations.left()} == {waiting.id, detached.id}

    def test_is_run_to_its_end(self, operations, make, publisher, fill):
        fill(*"abc")
        ended = operations.carry_on(make(detached=True).id, never)
        assert (ended.error, ended.operation.state) == (None, OperationState.DONE)
        assert publisher.sent == list("abc")

    def test_is_not_what_somebody_paused_meanwhile(self, operations, make, fill):
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
        """As a command does that runs it, so that its cause can be seen, and it goes on when told."""
        ended = operations.carry_on(lacking.id, never)
        paused = operations.get(lacking.id)
        assert paused.state is OperationState.PAUSED
        assert "cannot be imported" in paused.cause
        assert (ended.error, ended.operation) == (paused.cause, paused)
        assert operations.left() == []
        operations.resume(lacking.id, who="tester")
        assert [one.id for one in operations.left()] == [lacking.id]

    def test_is_paused_where_its_letters_cannot_be_tried(
        self, operations, states, fill, monkeypatch
    ):
        fill("a")
        gone = types.SimpleNamespace(app=operations._app)
        monkeypatch.setitem(sys.modules, "not_a_file", gone)
        orders = Orders(checking=Checking(validate=True))
        made = operations.make(Filter(), orders, who="tester", detached=True)
        ended = operations.carry_on(made.id, never)
        assert ended.operation.state is OperationState.PAUSED
        assert ended.operation.cause.startswith("not_a_file:app cannot be imported for --validate")
        assert states() == {"a": "dead"}

    def test_is_not_paused_by_who_has_lost_it(self, operations, lacking, monkeypatch):
        lost = contextlib.contextmanager(lambda *_: iter([lambda: False]))
        monkeypatch.setattr(module, "kept", lost)
        operations.carry_on(lacking.id, never)
        assert operations.get(lacking.id).state is OperationState.RUNNING

    def test_is_not_paused_by_a_store_that_is_away(
        self, operations, make, store, fill, monkeypatch
    ):
        fill("a")
        made = make(detached=True)
        away = Mock(side_effect=StoreUnavailable)
        monkeypatch.setattr(store, "claim_for", away)
        with pytest.raises(StoreUnavailable):
            operations.carry_on(made.id, never)
        assert operations.get(made.id).state is OperationState.RUNNING

    def test_stays_cancelled_if_somebody_was_quicker(self, operations, lacking, monkeypatch):
        make_repairs = engine.Repairs

        def meanwhile(*given):
            operations.cancel(lacking.id, who="ann")
            return make_repairs(*given)

        monkeypatch.setattr(engine, "Repairs", meanwhile)
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


def test_the_plan_says_what_the_run_will_do(operations, make, resume, fill, states):
    fill(*"abc")
    fill("x", task="shop.gone")
    resume(make(Filter(ids=("c",))))
    before = states()
    plan = operations.plan(Filter(), Orders())
    assert (plan.matched, plan.sendable, plan.in_flight) == (4, 2, 1)
    assert plan.by_task == {"shop.charge": 2}
    assert [item.task_id for item in plan.skipped] == ["x"]
    assert any("awaited" in note for note in plan.notes)
    assert states() == before
    limited = operations.plan(Filter(), Orders(pacing=Pacing(limit=1), guard=Guard(window=7)))
    assert limited.sendable == 1
    assert any("oldest" in note for note in limited.notes)


class TestSentAlready:
    """Letters that are redriven, taken once more."""

    def test_the_plan_says_how_many_may_run_twice(self, operations, make, resume, fill):
        fill(*"abc")
        resume(make(Filter(ids=("a", "b"))))
        plan = operations.plan(Filter(states=frozenset({State.DEAD, State.REDRIVEN})), Orders())
        assert (plan.sendable, plan.awaited) == (3, 2)
        assert plan.notes == (
            "2 sent already, their outcome is awaited; sent again, they may run twice.",
        )

    def test_those_of_which_no_outcome_came_are_none(self, operations, make, resume, fill, silent):
        silent.add("shop.charge")
        fill("a")
        resume(make())
        plan = operations.plan(Filter(states=frozenset({State.REDRIVEN})), Orders())
        assert (plan.sendable, plan.awaited, plan.notes) == (1, 0, ())

    def test_they_are_not_looked_for_where_none_is_taken(
        self, operations, store, fill, monkeypatch
    ):
        fill("a")
        monkeypatch.setattr(type(store), "count_awaited", lambda *_: 1 / 0)
        assert operations.plan(Filter(), Orders()).awaited == 0

    def test_those_that_are_left_alone_are_awaited_or_not(
        self, operations, make, resume, fill, silent
    ):
        silent.add("shop.charge")
        fill("a")
        resume(make())
        assert operations.plan(Filter(), Orders()).notes == (
            "1 claimed or redriven already; left alone, their outcome is awaited or unknown.",
        )


class TestAnotherTask:
    """Letters of a task that was renamed."""

    @pytest.fixture
    def renamed(self, fill):
        fill(
            "x", task="shop.gone", envelope=envelope("x", headers={"id": "x", "task": "shop.gone"})
        )
        return Orders(repair=Repair(to_task="shop.charge"))

    def test_is_what_the_plan_and_the_run_look_at(self, operations, redrive, store, renamed):
        plan = operations.plan(Filter(), renamed)
        assert (plan.sendable, plan.skipped) == (1, ())
        assert redrive(orders=renamed).counts.out == 1
        [sending] = store.sendings_of("x")
        assert sending.change == '- task = "shop.gone"\n+ task = "shop.charge"'

    def test_is_what_a_canary_needs_outcomes_of(self, operations, renamed, silent):
        silent.add("shop.charge")
        with pytest.raises(OrdersError, match="charge are not"):
            operations.plan(Filter(), replace(renamed, pacing=Pacing(canary=1)))

    def test_that_is_not_there_either(self, operations, redrive, renamed, store):
        orders = Orders(repair=Repair(to_task="shop.nowhere"))
        assert operations.plan(Filter(), orders).sendable == 0
        assert redrive(orders=orders).counts.skipped == 1
        [sending] = store.sendings_of("x")
        assert "task shop.nowhere is not registered" in sending.why

    def test_is_what_a_worker_has_to_know(self, operations, renamed):
        operations.make(Filter(), renamed, who="tester", detached=True)
        assert len(operations.left()) == 1


def test_closed_letters_cannot_be_asked_for():
    with pytest.raises(FilterError, match="resolved cannot be redriven"):
        redrivable(Filter(states=frozenset({State.RESOLVED})))
    assert redrivable(Filter()).states == {State.DEAD}


class TestHome:
    """Two apps on one store."""

    @pytest.fixture
    def elsewhere(self, app, store, time):
        """The same tasks in another app."""
        other = Celery("bank", broker="memory://", set_as_current=False)
        for name, task in app.tasks.items():
            other.tasks[name] = task
        means = Means(
            app=other, store=store, settings=Settings(), redactor=Redactor(()),
            reports=lambda _: True, clock=time.clock,
        )  # fmt: skip
        return Operations(means)

    def test_another_app_does_not_carry_it_out(self, operations, make, elsewhere, fill, publisher):
        fill("a")
        made = make(detached=True)
        assert operations.get(made.id).home.app == "unit"
        assert elsewhere.left() == []
        assert elsewhere.carry_on(made.id, never) is None
        with pytest.raises(OperationError, match="made for app unit, and this is bank"):
            elsewhere.run(made.id, who="tester", on_progress=lambda _: None, should_stop=never)
        assert operations.get(made.id).state is OperationState.PLANNED
        assert [one.id for one in operations.left()] == [made.id]
        assert publisher.sent == []

    def test_it_may_be_cancelled_from_anywhere(self, operations, make, elsewhere, fill):
        fill("a")
        made = make(detached=True)
        assert elsewhere.cancel(made.id, who="tester").state is OperationState.CANCELLED


def test_what_was_planned_is_not_planned_once_more(operations, fill, monkeypatch):
    fill("a")
    plan = operations.plan(Filter(), Orders())
    monkeypatch.setattr(operations, "plan", lambda *_: 1 / 0)
    made = operations.make(Filter(), Orders(), who="tester", detached=False, plan=plan)
    assert made.counts.planned == 1
