"""What a plan says before anything is sent, and whether the run keeps to it."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.factories import T0, envelope

from celery_dlq import Filter
from celery_dlq.errors import (
    FilterError,
    OrdersError,
    RedriveError,
)
from celery_dlq.model.operation import Guard, Orders, Pacing, Repair
from celery_dlq.model.states import State
from celery_dlq.redrive import plan as module
from celery_dlq.redrive.letter.checks import Checked, Checks
from celery_dlq.redrive.plan import redrivable


def test_the_plan_predicts_the_run(operations, make, resume, fill, states):
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


def warned(operations, **wanted):
    notes = operations.plan(Filter(**wanted), Orders()).notes
    return [note for note in notes if "last redrive" in note]


def test_the_plan_warns_of_a_group_whose_last_redrive_failed(
    operations, make, resume, fill, worker, time
):
    fill(*"abc")
    fill("x", fingerprint="ffff")
    assert warned(operations) == []
    done = resume(make(Filter(ids=("a",))))
    worker.run(fails=lambda task_id: True)
    said = f"Group 9c1e0000: 1 of 1 failed again in its last redrive, operation {done.id}."
    assert warned(operations) == warned(operations, group="9c1e") == [said]
    assert warned(operations, group="ffff") == warned(operations, ids=("x",)) == []
    time.pass_(60)
    resume(make(Filter(ids=("b",))))
    worker.run()
    assert warned(operations) == []


REFUSED = Orders(repair=Repair(assignments=("args.9=1",)))


class TestTrial:
    """The first letters of a plan, tried one by one."""

    def test_the_plan_says_the_number_that_was_checked(self, operations, redrive, fill):
        fill(*"ab")
        fill("c", envelope=envelope("c", body=b"[[1,2,3,4,5,6,7,8,9,10], {}, {}]"))
        plan = operations.plan(Filter(), REFUSED)
        assert (plan.matched, plan.sendable, plan.tried, plan.is_exact) == (3, 1, 3, True)
        assert plan.by_task == {"shop.charge": 1}
        assert [one.task_id for one in plan.skipped] == ["a", "b"]
        assert "has no args" in plan.skipped[0].why_not
        assert plan.notes == ("2 cannot be sent and stay dead.",)
        assert redrive(orders=REFUSED).counts.out == 1

    def test_the_first_changes_are_part_of_the_plan(self, operations, fill):
        fill(*"abcdef", args=[1])
        fill("z", task="shop.gone")
        orders = Orders(repair=Repair(assignments=("args[0]=5",)))
        plan = operations.plan(Filter(), orders)
        assert (plan.sendable, plan.unsendable, plan.changed) == (6, 1, 7)
        assert len(plan.changes) == 5
        assert plan.changes[0].change == "- args[0] = 17\n+ args[0] = 5"
        assert operations.plan(Filter(), Orders()).changes == ()

    def test_a_letter_that_only_its_body_might_refuse_is_sent_with_a_warning(
        self, operations, redrive, fill, app
    ):
        def refund(order_id, password, **more): ...

        task = app.task(refund, name="shop.refund", shared=False, typing=False, lazy=False)
        for name in "ab":
            headers = {"id": name, "task": "shop.refund"}
            fill(name, task="shop.refund", envelope=envelope(name, headers=headers))
        plan = operations.plan(Filter(), Orders())
        assert (plan.sendable, plan.unsendable) == (2, 0)
        assert plan.notes == (
            "2 may fail: the run() of shop.refund takes other arguments (missing password). "
            "Celery accepts their arguments, so they are sent.",
        )
        task.typing = True
        assert operations.plan(Filter(), Orders()).unsendable == 2
        task.typing = False
        assert redrive().counts.out == 2

    def test_letters_that_are_not_tried_count_as_sendable(self, operations, fill, monkeypatch):
        monkeypatch.setattr(module, "MOST", 2)
        fill(*"abcde")
        plan = operations.plan(Filter(), REFUSED)
        assert (plan.sendable, plan.tried, plan.is_exact) == (3, 2, False)
        assert plan.notes[-1].startswith("The first 2 were checked one by one")

    def test_it_takes_no_longer_than_a_moment(self, operations, fill, time, monkeypatch):
        def slow(*_):
            time.pass_(0.6 * module.PATIENCE_S)
            return Checked()

        monkeypatch.setattr(Checks, "check", slow)
        fill(*"abcde")
        assert operations.plan(Filter(), Orders()).tried == 2

    def test_a_limit_takes_the_oldest_and_is_exact(self, operations, fill):
        fill("a", *"bc")
        fill("old", last_failed_at=T0 - timedelta(days=1), task="shop.gone")
        plan = operations.plan(Filter(), Orders(pacing=Pacing(limit=2)))
        assert (plan.sendable, plan.tried, plan.is_exact) == (1, 2, True)
        assert [one.task_id for one in plan.skipped] == ["old"]

    def test_a_canary_needs_letters_that_pass(self, operations, fill):
        fill(*"abc")
        with pytest.raises(OrdersError, match="more than the 1 letters"):
            operations.plan(Filter(), Orders(pacing=Pacing(canary=2, limit=1)))

    def test_an_error_of_the_checks_is_noted(self, operations, fill, monkeypatch):
        def away(*_):
            raise RedriveError("The result backend does not answer")

        monkeypatch.setattr(Checks, "check", away)
        fill(*"ab")
        plan = operations.plan(Filter(), Orders())
        assert (plan.sendable, plan.is_exact) == (2, False)
        assert plan.notes == ("The others were not checked: The result backend does not answer",)


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

    def test_they_are_not_counted_where_none_is_taken(self, operations, store, fill, monkeypatch):
        fill("a")
        monkeypatch.setattr(type(store.sendings), "count_awaited", lambda *_: 1 / 0)
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

    def test_is_checked_by_the_plan_and_the_run(self, operations, redrive, store, renamed):
        plan = operations.plan(Filter(), renamed)
        assert (plan.sendable, plan.skipped) == (1, ())
        assert redrive(orders=renamed).counts.out == 1
        [sending] = store.sendings.of_letter("x")
        assert sending.change == '- task = "shop.gone"\n+ task = "shop.charge"'

    def test_has_to_report_outcomes_for_a_canary(self, operations, renamed, silent):
        silent.add("shop.charge")
        with pytest.raises(OrdersError, match="charge are not"):
            operations.plan(Filter(), replace(renamed, pacing=Pacing(canary=1)))

    def test_that_is_not_registered_either(self, operations, redrive, renamed, store):
        orders = Orders(repair=Repair(to_task="shop.nowhere"))
        assert operations.plan(Filter(), orders).sendable == 0
        assert redrive(orders=orders).counts.skipped == 1
        [sending] = store.sendings.of_letter("x")
        assert "task shop.nowhere is not registered" in sending.why

    def test_has_to_be_registered_in_a_worker(self, operations, renamed):
        operations.make(Filter(), renamed, who="tester", detached=True)
        assert len(operations.left()) == 1


def test_closed_letters_cannot_be_asked_for():
    with pytest.raises(FilterError, match="resolved cannot be redriven"):
        redrivable(Filter(states=frozenset({State.RESOLVED})))
    assert redrivable(Filter()).states == {State.DEAD}


def test_a_given_plan_is_not_made_again(operations, fill, monkeypatch):
    fill("a")
    plan = operations.plan(Filter(), Orders())
    monkeypatch.setattr(operations, "plan", lambda *_: 1 / 0)
    made = operations.make(Filter(), Orders(), who="tester", detached=False, plan=plan)
    assert made.counts.planned == 1
