"""Which acts become requests where they begin, and what is asked of the store for that."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from support.factories import envelope, letter
from support.factories import opened as open_letter

from celery_dlq import Approval, DLQTask, Filter, Settings
from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.errors import ApprovalNeeded, OrdersError, SettingsError
from celery_dlq.model.operation import Orders, SendingState
from celery_dlq.model.request import Login
from celery_dlq.model.states import State
from celery_dlq.redrive import loop
from celery_dlq.redrive.broker.message import Sent
from celery_dlq.redrive.gate import Gate
from celery_dlq.redrive.letter.checks import Checks
from celery_dlq.redrive.plan import make_plan, try_first
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

    def test_a_letter_that_is_never_redriven_is_not_sent(self, app, opened):
        checked = Checks(app, Orders()).check(opened("shop.never"), letter().last_failed_at)
        assert "never redriven (its option dlq_redrive); discard them" in checked.why_not

    @pytest.mark.parametrize("is_approved", [True, False])
    def test_without_an_approval_a_letter_is_not_sent(self, app, opened, is_approved):
        checks = Checks(app, Orders(), is_approved=lambda: is_approved)
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
