"""Which acts become requests where they begin, and what is asked of the store for that."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from support.factories import attempt, envelope, letter
from support.factories import opened as open_letter

from celery_dlq import Approval, DLQTask, Filter, Settings
from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.errors import ApprovalNeeded, FilterError, OrdersError, SettingsError
from celery_dlq.model.operation import Orders, Pacing, Repair, SendingState
from celery_dlq.model.request import Login
from celery_dlq.model.states import State
from celery_dlq.redrive import loop
from celery_dlq.redrive.broker.message import Sent
from celery_dlq.redrive.gate import Gate
from celery_dlq.redrive.letter.checks import Checks
from celery_dlq.redrive.plan import make_plan, try_first
from celery_dlq.store.database import tables
from celery_dlq.store.letters.counting import Counts

DEAD = Filter(states=frozenset({State.DEAD}))


@pytest.fixture
def app(shop_app):
    def run(order_id, currency="EUR"): ...

    for option in ("approve", "never"):
        name = f"shop.{option}"
        shop_app.task(name=name, base=DLQTask, dlq_redrive=option, shared=False)(run)
    return shop_app


@pytest.fixture
def store(app):
    return DeadLetterQueue.of(app).store


@pytest.fixture
def die(store):
    return lambda *tasks: store.letters.save(
        [letter(f"{number}", task=f"shop.{task}") for number, task in enumerate(tasks)]
    )


@pytest.fixture
def check(app, store):
    def check(act="redrive", *, rule=None, proposes=False, **given):
        gate = Gate(app, store, Settings(approval=rule), proposes)
        gate.check(act, DEAD, who="ann", why="", **given)

    return check


def requests(store):
    return [(one.act, one.count) for one in store.requests.find()]


def test_an_app_without_a_rule_and_options_asks_the_store_nothing(shop_app, monkeypatch):
    store = DeadLetterQueue.of(shop_app).store
    monkeypatch.setattr(Counts, "by_task", lambda *_: pytest.fail("the store was asked"))
    gate = Gate(shop_app, store, Settings(), proposes=False)
    for act in ("redrive", "delete", "forget", "edit"):
        gate.check(act, DEAD, who="ann", why="")


def test_a_rule_counts_the_letters_and_their_tasks(check, die, store):
    die("charge", "charge", "mail")
    for rule in (
        Approval(above=3),
        Approval(acts={"delete"}),
        Approval(tasks={"shop.refund"}),
    ):
        check(rule=rule)
    check(rule=Approval(above=1), limit=1)
    assert requests(store) == []
    with pytest.raises(ApprovalNeeded, match=r"Request [0-9a-f]{12} waits until 20"):
        check(rule=Approval(above=2, tasks={"shop.mail"}))
    assert requests(store) == [("redrive", 3)]


def test_letters_that_are_sent_to_their_own_task_count(check, die, store):
    die("charge", "charge", "mail")
    with pytest.raises(ApprovalNeeded):
        check(rule=Approval(above=2), to_task="shop.charge")
    assert requests(store) == [("redrive", 3)]


def test_a_deletion_takes_only_the_letters_that_were_counted(app, check, die, store, monkeypatch):
    """The test of time: a letter dies while the rule is asked."""
    die("charge", "mail")
    count = Counts.by_task

    def count_and_die(self, wanted):
        counted = count(self, wanted)
        store.letters.save([letter("late", task="shop.charge")])
        return counted

    monkeypatch.setattr(Counts, "by_task", count_and_die)
    queue = DeadLetterQueue.of(app)
    queue.settings = replace(queue.settings, approval=Approval(above=2))
    assert queue.delete(DEAD, who="ann", why="old", is_open=True) == 2
    assert [one.task_id for one in store.letters.find(DEAD).letters] == ["late"]
    assert queue.delete(replace(DEAD, task="nosuch"), who="ann", why="old", is_open=True) == 0
    assert store.counts.letters(DEAD) == 1


def test_a_deletion_has_as_many_letters_as_a_person_can_decide_about(check, die, monkeypatch):
    monkeypatch.setattr("celery_dlq.store.requests.MOST", 2)
    die("charge", "charge", "mail")
    with pytest.raises(FilterError, match="at most 2 letters"):
        check("delete", rule=Approval(above=99))
    check("delete", rule=Approval(acts={"edit"}))


def test_no_letters_need_no_one(check, store):
    check(rule=Approval(), proposes=True)
    assert requests(store) == []


def test_a_process_that_only_proposes(check, die, store):
    die("charge")
    check("delete", rule=Approval(acts={"edit"}), proposes=True)
    for act, rule in (("delete", None), ("edit", Approval(acts={"edit"}, above=100))):
        with pytest.raises(ApprovalNeeded):
            check(act, rule=rule, proposes=True)
    assert sorted(requests(store)) == [("delete", 1), ("edit", 1)]


class TestOptionOfATask:
    def test_approve_needs_a_second_person_for_a_redrive_only(self, check, die, store):
        die("charge", "approve")
        check("delete")
        with pytest.raises(ApprovalNeeded):
            check()
        assert requests(store) == [("redrive", 2)]

    def test_it_counts_for_the_task_that_letters_are_sent_to(self, check, die):
        die("charge")
        with pytest.raises(ApprovalNeeded):
            check(to_task="shop.approve")

    def test_only_letters_that_are_never_redriven_are_refused(self, check, die, store):
        die("never", "never")
        with pytest.raises(OrdersError, match=r"letters of shop\.never are never redriven"):
            check()
        assert requests(store) == []

    def test_they_are_refused_also_for_another_task(self, check, die, store):
        die("never", "never")
        with pytest.raises(OrdersError, match=r"letters of shop\.never are never redriven"):
            check(to_task="shop.charge")
        assert requests(store) == []

    def test_nothing_is_sent_to_a_task_that_is_never_redriven(self, check, die):
        die("charge")
        with pytest.raises(OrdersError, match=r"letters of shop\.never are never redriven"):
            check(to_task="shop.never")

    def test_a_letter_that_is_never_redriven_is_not_sent(self, app, opened):
        checked = Checks(app, Orders()).check(opened("shop.never"), letter().last_failed_at)
        assert "never redriven (its option dlq_redrive); discard them" in checked.why_not

    @pytest.mark.parametrize("is_approved", [True, False])
    def test_without_an_approval_a_letter_is_not_sent(self, app, opened, is_approved):
        checks = Checks(app, Orders(), is_approved=is_approved)
        why_not = checks.check(opened("shop.approve"), letter().last_failed_at).why_not
        assert (why_not is None) == is_approved
        assert is_approved or "only after a second person has approved it" in why_not

    def test_a_plan_shows_both(self, app, store, die):
        die("charge", "approve", "never")
        context = DeadLetterQueue.of(app).redrive_context
        plan = make_plan(context, Filter(), Orders(), try_first(context, Filter(), Orders()))
        assert (plan.sendable, plan.unsendable) == (2, 1)
        assert any("never redriven" in one.why_not for one in plan.skipped)
        assert any("second person" in note for note in plan.notes)

    @pytest.mark.parametrize(
        ("settings", "orders", "said"),
        [
            ({"approval": Approval(above=1)}, Orders(), "(dlq_approval)."),
            ({"approval": Approval(above=1)}, Orders(pacing=Pacing(limit=1)), ""),
            ({"approval": Approval(acts={"edit"})}, Orders(), ""),
            (
                {"approval": Approval(tasks={"shop.mail"})},
                Orders(repair=Repair(to_task="shop.mail")),
                "(dlq_approval).",
            ),
            ({}, Orders(repair=Repair(to_task="shop.approve")), "(its option dlq_redrive)."),
        ],
    )
    def test_a_plan_says_that_it_needs_a_second_person(
        self, app, store, die, settings, orders, said
    ):
        die("charge", "charge")
        context = DeadLetterQueue.of(app).redrive_context
        context = replace(context, settings=replace(context.settings, **settings))
        plan = make_plan(context, Filter(), orders, try_first(context, Filter(), orders))
        found = [note for note in plan.notes if "second person" in note]
        assert len(found) == bool(said)
        assert all(note.endswith(said) for note in found)

    def test_a_plan_of_a_process_that_only_proposes_says_so(self, app, die):
        die("charge")
        context = replace(DeadLetterQueue.of(app).redrive_context, proposes=True)
        plan = make_plan(context, Filter(), Orders(), try_first(context, Filter(), Orders()))
        assert "The command line only asks a second person (dlq_cli_acts)." in plan.notes

    @pytest.mark.parametrize("value", ["ask", None, True])
    def test_another_value_is_refused(self, shop_app, value):
        @shop_app.task(name="shop.x", base=DLQTask, dlq_redrive=value, shared=False)
        def run(): ...

        with pytest.raises(SettingsError, match="'allow', 'approve' or 'never'"):
            run.name  # noqa: B018 - makes it


@pytest.fixture
def opened(app):
    """A letter of a task, with its message open."""

    def opened(task):
        headers = {"id": "0d3f", "task": task, "lang": "py"}
        return open_letter(app, letter(task=task, envelope=envelope(headers=headers)))

    return opened


class TestSending:
    """The redrive of a worker, which knows only the operation."""

    @pytest.fixture
    def sent(self, app, store, die, monkeypatch):
        die("charge", "approve", "never")
        published = []

        def begin(letters):
            published.extend(one.task_id for one in letters)
            return lambda: Sent(confirmed=[one.task_id for one in letters])

        @contextmanager
        def opened(_app):
            yield SimpleNamespace(confirms_later=False, begin=begin)

        monkeypatch.setattr(loop, "open_publisher", opened)
        return published

    def reasons(self, store, operation):
        rows = store.sendings.of_operation(operation.id, states=frozenset(), limit=9).rows
        return {one.task_id: one.why for one in rows if one.state is SendingState.SKIPPED}

    def test_an_operation_that_no_one_approved_leaves_both(self, app, store, sent):
        redrives = DeadLetterQueue.of(app).redrives
        made = redrives.draft(Filter(), Orders(), who="auto:charges", detached=True)
        store.operations.create(made)
        assert redrives.carry_on(made.id, lambda: False).error is None
        assert sent == ["0"]
        why = self.reasons(store, made)
        assert "only after a second person has approved it" in why["1"]
        assert "never redriven" in why["2"]

    def test_an_approved_one_sends_all_but_never(self, app, store, sent):
        queue = DeadLetterQueue.of(app)
        with pytest.raises(ApprovalNeeded) as asked:
            queue.redrives.start(Filter(), who=Login("ann"))
        queue.requests.approve(asked.value.request, who=Login("bob"))
        assert queue.redrives.carry_on(asked.value.request, lambda: False).error is None
        assert sent == ["0", "1"]

    def test_letters_that_are_sent_to_another_task_keep_their_own_option(self, app, store, sent):
        redrives = DeadLetterQueue.of(app).redrives
        orders = Orders(repair=Repair(to_task="shop.charge"))
        made = redrives.draft(Filter(), orders, who="auto:charges", detached=True)
        store.operations.create(made)
        assert redrives.carry_on(made.id, lambda: False).error is None
        assert sent == ["0"]
        assert "never redriven" in self.reasons(store, made)["2"]

    def test_a_letter_that_was_changed_after_the_approval_is_not_sent(self, app, store, sent):
        queue = DeadLetterQueue.of(app)
        with pytest.raises(ApprovalNeeded) as asked:
            queue.redrives.start(Filter(), who=Login("ann"))
        request = asked.value.request
        queue.requests.approve(request, who=Login("bob"))
        queue.redrives.pause(request, who="ann")
        queue.edit("0", who="ann", kwargs={"currency": "USD"})
        store.letters.save([letter("1", attempt(minutes=5), task="shop.approve")])
        done = queue.redrives.resume(request, who="ann")
        assert (sent, done.counts.skipped) == ([], 3)
        reasons = self.reasons(store, done)
        assert reasons["0"] == "its message was edited"
        assert reasons["1"] == "it has failed again"

    def test_letters_that_were_put_into_an_approved_operation_are_not_sent(self, app, store, sent):
        queue = DeadLetterQueue.of(app)
        with pytest.raises(ApprovalNeeded) as asked:
            queue.redrives.start(Filter(ids=("1",)), who=Login("ann"))
        queue.requests.approve(asked.value.request, who=Login("bob"))
        wanted = json.dumps({"ids": ["0", "1"], "states": ["dead"]})
        with store.database.engine.begin() as connection:
            values = sa.update(tables.operation).values(wanted=wanted, planned=2)
            connection.execute(values)
        assert queue.redrives.carry_on(asked.value.request, lambda: False).error is None
        assert sent == ["1"]
