"""Acts that need a second person cannot be done by one. Each attack is refused, and each is in the audit."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import sqlalchemy as sa
from support.factories import T0, attempt, letter, operation

from celery_dlq import Approval, Filter, Orders, Pacing, Repair
from celery_dlq.api import erasure
from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.errors import ApprovalNeeded, RequestRefused
from celery_dlq.model.operation import Counts, OperationState
from celery_dlq.model.request import Login, RequestState
from celery_dlq.model.states import State
from celery_dlq.store.database import clock, tables

ANN, BOB, EVE = Login("ann (flower)"), Login("bob (flower)"), Login("eve (flower)")
CHARGES = Filter(task="shop.charge")


@pytest.fixture
def queue(shop_app):
    shop_app.conf.dlq_approval = Approval(above=1)
    queue = DeadLetterQueue.of(shop_app)
    queue.store.letters.save([letter(name, attempt(minutes=n)) for n, name in enumerate("abc")])
    return queue


@pytest.fixture
def ask(queue):
    """Asks for a redrive of the three letters; returns the id of the request."""

    def ask(who=ANN):
        with pytest.raises(ApprovalNeeded) as refused:
            queue.redrives.start(CHARGES, who=who, orders=Orders(why="fixed"), detach=True)
        return refused.value.request

    return ask


@pytest.fixture
def approve(queue):
    return lambda request, who=BOB: queue.requests.approve(request, who=who)


@pytest.fixture
def refused(queue, approve):
    """Expects that an approval is refused and noted, and that nothing has begun; returns the error."""

    def refused(request, who=BOB):
        before = len(acts(queue))
        with pytest.raises(RequestRefused) as error:
            approve(request, who)
        newest, *_ = queue.store.audit.find().rows
        assert (newest.act, newest.who, newest.detail["request"]) == ("deny", who, request)
        assert newest.why in str(error.value)
        assert len(acts(queue)) >= before + 1
        return str(error.value)

    return refused


def acts(queue):
    """The names of the acts in the audit, the oldest first."""
    return [one.act for one in queue.store.audit.find().rows][::-1]


def fail_again(store):
    """Another redrive has sent all letters, and they have failed again."""
    store.operations.create(operation("other", wanted=CHARGES, counts=Counts(planned=3)))
    made = store.operations.move("other", OperationState.RUNNING, who="root", now=T0)
    until = T0 + timedelta(days=9_999)
    held = store.claims.take(made, token="t", lease_until=until, limit=3, now=T0).letters
    store.claims.confirm("other", "t", {one.task_id: "" for one in held}, now=T0)
    again = attempt(redrive=1, minutes=90)
    store.letters.save(
        [
            store.letters.get(one.task_id).with_(
                attempts=(again,), last_failed_at=again.failed_at, redrive_count=1
            )
            for one in held
        ]
    )


def begun(queue):
    """The ids of all redrives."""
    return [one.id for one in queue.redrives.find()]


def test_a_direct_call_without_approval_becomes_a_request(queue, ask):
    request = queue.store.requests.get(ask())
    assert (request.act, request.who, request.proven) == ("redrive", ANN, True)
    assert (sorted(request.letters), request.count) == (["a", "b", "c"], 3)
    assert begun(queue) == []
    assert {one.state for one in queue.store.letters.find(CHARGES).letters} == {State.DEAD}
    assert acts(queue) == ["request"]


def test_another_person_approves_and_a_worker_sends_just_these_letters(queue, ask, approve):
    request = ask()
    queue.store.letters.save([letter("later", attempt(minutes=50))])
    done = approve(request)
    [operation] = queue.redrives.find()
    assert (done.state, done.result) == (
        RequestState.DONE,
        {"letters": 3, "left_out": {}, "operation": operation.id},
    )
    assert operation.id == request
    assert (operation.wanted.ids, operation.detached) == (("a", "b", "c"), True)
    assert (operation.who, operation.orders.why) == (ANN, "fixed")
    assert acts(queue) == ["request", "redrive", "approve"]


def test_the_requester_does_not_approve(queue, ask, refused):
    assert "another person has to approve it" in refused(ask(), ANN)
    assert begun(queue) == []


@pytest.mark.parametrize("name", ["ANN", "Ann (Flower)", "ann (flower) (flower)", "ann"])
def test_the_requester_does_not_approve_under_another_spelling(queue, ask, refused, name):
    assert "another person has to approve it" in refused(ask(), Login(name))
    assert begun(queue) == []


@pytest.mark.parametrize("name", ["anonymous at 10.0.0.1 (flower)", "bob", "bob (flower)"])
def test_a_name_that_no_login_proves_approves_nothing(queue, ask, refused, name):
    assert f"No login proves the name {name}" in refused(ask(), name)
    assert begun(queue) == []


def test_who_asked_without_a_login_needs_two_others(queue, ask, approve, refused):
    request = ask("root")
    assert approve(request, ANN).state is RequestState.OPEN
    assert begun(queue) == []
    assert "another login" in refused(request, Login("Ann (flower)"))
    assert approve(request, BOB).state is RequestState.DONE
    assert begun(queue) == [request]


def test_an_approval_is_used_once(queue, ask, approve, refused):
    request = ask()
    approve(request)
    assert "already approved by bob" in refused(request, EVE)
    assert begun(queue) == [request]


def test_a_letter_that_was_edited_after_the_approval_is_named(queue, ask, approve):
    request = ask()
    approve(request)
    queue.edit("a", who=ANN, kwargs={"currency": "USD"})
    plan = queue.store.requests.approved(request)
    assert queue.store.requests.changed(plan, ["a", "b"]) == {"a": "its message was edited"}
    assert queue.store.requests.changed(plan, ["x"]) == {"x": "it is no longer in the store"}


def test_a_repeated_act_is_a_new_request(queue, ask, approve):
    approve(ask())
    assert ask() not in begun(queue)


def test_a_refusal_wins_over_a_later_approval(queue, ask, approve, refused):
    request = ask("root")
    approve(request, ANN)
    assert queue.requests.refuse(request, who="root", why="no").state is RequestState.REFUSED
    assert "already refused by root" in refused(request, BOB)
    assert begun(queue) == []


def test_an_expired_request_is_refused(queue, ask, refused, monkeypatch):
    request = ask()
    later = queue.store.now() + timedelta(days=1, seconds=1)
    monkeypatch.setattr(clock, "now", lambda _connection: later)
    assert queue.store.requests.get(request).state is RequestState.EXPIRED
    assert "It has expired" in refused(request)
    assert begun(queue) == []
    assert acts(queue) == ["request", "deny"]


def test_of_two_at_once_one_wins(queue, ask):
    request = ask()

    def approve(who):
        try:
            return queue.requests.approve(request, who=who).state.value
        except RequestRefused as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        ends = sorted(pool.map(approve, [BOB, EVE]))
    assert ends[1] == "done"
    assert "already approved by" in ends[0]
    assert begun(queue) == [request]
    assert sorted(acts(queue)) == ["approve", "deny", "redrive", "request"]


def test_letters_that_changed_are_left_out(queue, ask, approve):
    request = ask()
    queue.edit("a", who=ANN, kwargs={"currency": "USD"})
    queue.store.closing.discard(Filter(ids=("b",)), who=ANN, why="no", now=T0)
    done = approve(request)
    assert done.result["left_out"] == {"a": "its message was edited", "b": "it is discarded now"}
    assert queue.redrives.get(request).wanted.ids == ("c",)


def test_if_all_letters_changed_nothing_runs(queue, ask, approve):
    request = ask()
    fail_again(queue.store)
    done = approve(request)
    assert done.state is RequestState.FAILED
    assert done.result["why"] == "every letter has changed since"
    assert set(done.result["left_out"].values()) == {"it has failed again"}
    assert begun(queue) == ["other"]
    assert acts(queue) == ["request", "redrive", "approve"]


@pytest.mark.parametrize(
    "forged",
    [
        {"letters": {"a": ""}},
        {"changes": {"repair": {"assignments": ["args.0=1"]}}},
        {"who": "mallory"},
        {"proven": True, "who": "eve"},
        {"expires_at": (T0 + timedelta(days=36_500)).isoformat()},
        {"answers": [{"who": "x", "at": T0.isoformat(), "approves": True, "why": ""}]},
        {"act": "delete"},
    ],
    ids=lambda forged: next(iter(forged)),
)
def test_a_request_that_was_changed_in_the_database_is_refused(queue, ask, refused, forged):
    request = ask("root")
    with queue.store.database.engine.begin() as connection:
        record = json.loads(connection.scalar(sa.select(tables.request.c.record)))
        changed = json.dumps({**record, **forged})
        connection.execute(sa.update(tables.request).values(record=changed))
    assert "it was changed in the database" in refused(request)
    assert queue.store.requests.get(request).state is RequestState.FAILED
    assert begun(queue) == []


def test_a_reason_that_was_changed_in_the_database_is_noticed(queue, ask, refused):
    request = ask()
    with queue.store.database.engine.begin() as connection:
        connection.execute(sa.update(tables.request).values(why="harmless"))
    assert "it was changed in the database" in refused(request)


def test_the_orders_are_those_that_were_asked_for(queue):
    changes = Repair(assignments=('kwargs.currency="USD"', 'kwargs.password="x"'))
    orders = Orders(why="fixed", repair=changes, pacing=Pacing(rate=5.0, limit=2))
    with pytest.raises(ApprovalNeeded) as asked:
        queue.redrives.start(CHARGES, who=ANN, orders=orders)
    waits = queue.store.requests.get(asked.value.request)
    assert [*waits.letters] == ["a", "b"], "the oldest failures"
    assert waits.shown == {"set": ['kwargs.currency="USD"', "kwargs.password=[redacted]"]}
    queue.requests.approve(waits.id, who=BOB)
    assert queue.redrives.get(waits.id).orders == orders


class TestOtherActs:
    def test_a_deletion_takes_just_these_letters_once(self, queue, approve, refused):
        with pytest.raises(ApprovalNeeded) as asked:
            queue.delete(CHARGES, who=ANN, why="asked by legal", is_open=True)
        request = asked.value.request
        queue.store.letters.save([letter("later", attempt(minutes=50))])
        done = approve(request)
        assert (done.state, done.result["letters"]) == (RequestState.DONE, 3)
        assert [one.task_id for one in queue.store.letters.find(CHARGES).letters] == ["later"]
        assert acts(queue) == ["request", "delete", "approve"]
        refused(request, EVE)

    def test_an_edit(self, shop_app):
        shop_app.conf.dlq_approval = Approval(acts={"edit"})
        queue = DeadLetterQueue.of(shop_app)
        queue.store.letters.save([letter("a", attempt())])
        with pytest.raises(ApprovalNeeded) as asked:
            queue.edit("a", who=ANN, kwargs={"currency": "USD"})
        waits = queue.store.requests.get(asked.value.request)
        assert "USD" in waits.shown["change"]
        assert queue.store.edits.of_letter("a") == []
        done = queue.requests.approve(asked.value.request, who=BOB)
        assert done.state is RequestState.DONE
        assert queue.store.letters.get("a").kwargs == {"currency": "USD"}
        ended = queue.store.requests.get(done.id)
        assert (ended.changes, ended.shown) == ({}, {})

    @pytest.mark.parametrize("given", [{"ids": ["a", "b"]}, {"where": ["args.0=17"]}])
    def test_an_erasure(self, queue, approve, given):
        erasing = queue.erasure(**given)
        lease = queue.store.leases.take("retention", holder="me", seconds=60)
        found = erasing.look()
        number = len(found.stored)
        assert number > 1
        with pytest.raises(ApprovalNeeded) as asked:
            erasing.carry_out(found, lease, who=ANN, why="asked by him")
        queue.store.leases.give_up(lease)
        done = approve(asked.value.request)
        assert (done.state, done.result["letters"]) == (RequestState.DONE, number)
        assert queue.store.counts.letters(CHARGES) == 3 - number
        assert acts(queue) == ["request", "approve", "forget"]

    def test_an_erasure_waits_while_another_process_removes_letters(self, queue, approve):
        erasing = queue.erasure(ids=["a", "b"])
        lease = queue.store.leases.take("retention", holder="me", seconds=60)
        with pytest.raises(ApprovalNeeded) as asked:
            erasing.carry_out(erasing.look(), lease, who=ANN, why="asked by him")
        with pytest.raises(Exception, match="removes letters at the moment"):
            approve(asked.value.request)
        assert queue.store.requests.get(asked.value.request).state is RequestState.OPEN

    def test_an_erasure_whose_approval_was_tried_twice(self, queue, approve, monkeypatch):
        """The database may have begun the transaction again, after a letter was changed."""
        erasing = queue.erasure(ids=["a", "b", "c"])
        lease = queue.store.leases.take("retention", holder="me", seconds=60)
        with pytest.raises(ApprovalNeeded) as asked:
            erasing.carry_out(erasing.look(), lease, who=ANN, why="asked by him")
        queue.store.leases.give_up(lease)
        queue.edit("c", who=ANN, kwargs={"currency": "USD"})
        answer = queue.store.requests.answer

        def try_twice(request, begin, **given):
            begin(["a", "b", "c"])
            return answer(request, begin, **given)

        monkeypatch.setattr(queue.store.requests, "answer", try_twice)
        assert approve(asked.value.request).result["left_out"] == {"c": "its message was edited"}
        assert [one.task_id for one in queue.store.letters.find(CHARGES).letters] == ["c"]

    def test_an_erasure_that_was_killed_is_asked_for_again(self, queue, approve, monkeypatch):
        def ask():
            lease = queue.store.leases.take("retention", holder="me", seconds=60)
            erasing = queue.erasure(ids=["a", "b"])
            with pytest.raises(ApprovalNeeded) as asked:
                erasing.carry_out(erasing.look(), lease, who=ANN, why="asked by him")
            queue.store.leases.give_up(lease)
            return asked.value.request

        def die(*_args, **_options):
            raise KeyboardInterrupt

        killed = ask()
        monkeypatch.setattr(erasure.Erasure, "carry_out", die)
        with pytest.raises(KeyboardInterrupt):
            approve(killed)
        monkeypatch.undo()
        assert queue.store.requests.get(killed).state is RequestState.DONE
        with pytest.raises(RequestRefused, match="already approved by bob"):
            approve(killed)
        assert queue.store.counts.letters(CHARGES) == 3
        assert approve(ask()).state is RequestState.DONE
        assert queue.store.counts.letters(CHARGES) == 1
