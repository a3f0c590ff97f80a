"""From dead letters to carried-out verdicts: the dispatcher, its messages, and the task that runs them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import update
from support.factories import T0, attempt, letter

from celery_dlq import Discard, Filter, Leave, Redrive, Ticket
from celery_dlq.errors import HandlerError, RecordRefused, StoreUnavailable
from celery_dlq.model.handling import HANDLE_TASK, TRIES, HandlingState
from celery_dlq.model.states import State
from celery_dlq.store.database import tables
from celery_dlq.upkeep.automation import dispatcher
from celery_dlq.upkeep.automation.dispatcher import Dispatcher


def let_pass(store, **columns):
    change = update(tables.handling).values(columns)
    store.database.write(lambda connection: connection.execute(change))


def states(store):
    return {row.task_id: row.state.value for row in store.automations.find(limit=500).rows}


def test_each_letter_is_handled_once(handling, dlq, store):
    seen = []

    @dlq.handler(where=Filter(task="charge"))
    def repair(one):
        seen.append(one.task_id)
        return Discard("a duplicate")

    store.letters.save([letter("a"), letter("b"), letter("c", task="shop.mail")])
    assert handling.work_off() == 2
    assert sorted(seen) == ["a", "b"]
    assert store.letters.get("a").closed_by == "auto:repair"
    assert store.letters.get("c").state is State.DEAD
    assert handling.work_off() == 0


def test_a_message_names_only_its_handling_and_its_limits(handling, dlq, store):
    @dlq.handler(where=Filter(task="charge"), timeout=30)
    def repair(one):
        return Leave()

    store.letters.save([letter("a", kwargs={"token": "secret"})])
    handling.dispatch()
    [message] = handling.sent()
    [row] = store.automations.find().rows
    assert message.decode()[:2] == [[row.id], {}]
    assert message.headers["task"] == HANDLE_TASK
    assert message.headers["timelimit"] == [35.0, 30.0]
    assert message.headers["ignore_result"] is True


def test_a_handler_may_have_a_queue_of_its_own(handling, dlq, store):
    @dlq.handler(where=Filter(task="charge"), queue="slow")
    def repair(one):
        return Leave()

    dlq.app.conf.dlq_handler_queue = "never"
    store.letters.save([letter("a")])
    handling.dispatch()
    assert len(handling.sent("slow")) == 1


def test_a_message_delivered_twice_calls_the_handler_once(handling, dlq, store):
    seen = []

    @dlq.handler(where=Filter(task="charge"))
    def repair(one):
        seen.append(one.task_id)
        return Leave()

    store.letters.save([letter("a")])
    handling.dispatch()
    [message] = handling.sent()
    handling.run(message)
    handling.run(message)
    assert seen == ["a"]


def test_a_killed_worker_is_noticed_and_its_letter_handled_again(handling, dlq, store):
    @dlq.handler(where=Filter(task="charge"))
    def repair(one):
        return Discard("a duplicate")

    store.letters.save([letter("a")])
    handling.dispatch()
    handling.sent()
    [row] = store.automations.find().rows
    store.automations.start(row.id, worker="killed", within_s=-1)
    assert handling.work_off() == 1
    assert store.letters.get("a").state is State.DISCARDED
    assert store.automations.get(row.id).tries == 2


def test_messages_that_no_worker_starts_are_sent_again_with_a_warning(handling, dlq, store, caplog):
    @dlq.handler(where=Filter(task="charge"))
    def repair(one):
        return Leave()

    store.letters.save([letter("a"), letter("b")])
    handling.dispatch()
    # kombu logs at its first connection to the memory broker.
    assert not [record for record in caplog.records if record.name.startswith("celery_dlq")]
    let_pass(store, due_at=T0)
    handling.dispatch()
    assert (
        "handler repair: 2 messages were sent again, because no worker has started them; is there "
        "one that consumes the queue dlq-handlers?" in caplog.text
    )
    assert len(handling.sent()) == 4


def test_a_killed_dispatcher_has_its_messages_sent_again(handling, dlq, store, monkeypatch):
    @dlq.handler(where=Filter(task="charge"))
    def repair(one):
        return Discard("a duplicate")

    store.letters.save([letter("a")])

    class Killed(BaseException):
        pass

    def kill(*_args, **_options):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Dispatcher, "_publish", kill)
        with pytest.raises(Killed):
            handling.dispatch()
    handling.dispatch()
    assert handling.sent() == [], "only after a while"
    let_pass(store, due_at=T0)
    assert handling.work_off() == 1
    assert store.letters.get("a").state is State.DISCARDED


def test_a_broker_that_is_away_is_tried_again_soon(handling, dlq, store, monkeypatch):
    @dlq.handler(where=Filter(task="charge"))
    def repair(one):
        return Leave()

    store.letters.save([letter("a"), letter("b")])
    publish, sent = Dispatcher._publish, []

    def fail_second(self, *args):
        if sent:
            raise ConnectionError("reset")
        sent.append(args)
        publish(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Dispatcher, "_publish", fail_second)
        with pytest.raises(
            HandlerError, match=r"1 messages .*dlq-handlers: ConnectionError: reset"
        ):
            handling.dispatch()
    assert len(handling.sent()) == 1
    soon, later = sorted(row["due_at"] - store.now() for row in _rows(store))
    assert soon <= timedelta(seconds=dispatcher.UNSENT_S)
    assert later > timedelta(seconds=100)


def test_a_queue_that_takes_nothing_does_not_keep_the_next_handler_from_its_letters(
    handling, dlq, store, monkeypatch
):
    @dlq.handler(where=Filter(task="charge"), queue="refused")
    def first(one):
        return Leave()

    @dlq.handler(where=Filter(task="mail"))
    def second(one):
        return Leave()

    publish = Dispatcher._publish

    def refuse(self, handler, queue, *args):
        if queue == "refused":
            raise ConnectionError("PRECONDITION_FAILED")
        publish(self, handler, queue, *args)

    monkeypatch.setattr(Dispatcher, "_publish", refuse)
    store.letters.save([letter("a"), letter("b", task="mail")])
    with pytest.raises(HandlerError, match=r"handler first .* queue refused"):
        handling.dispatch()
    assert len(handling.sent()) == 1


def test_a_handler_that_raises_for_each_letter_makes_no_letters_and_is_bounded(
    handling, dlq, store
):
    calls = []

    @dlq.handler(where=Filter(task="charge"), per_hour=10)
    def repair(one):
        calls.append(one.task_id)
        raise KeyError("currency")

    store.letters.save([letter(f"a{number:03}", attempt(minutes=number)) for number in range(20)])
    handling.work_off()
    for _ in range(2 * TRIES):
        let_pass(store, due_at=T0)
        handling.work_off()
    assert len(set(calls)) <= 10
    assert max(map(calls.count, calls)) == TRIES
    assert store.counts.letters(Filter()) == 20
    assert {row.error for row in store.automations.find(limit=500).rows} == {
        "it raised KeyError: 'currency'"
    }
    assert set(states(store).values()) == {"failed"}


def test_a_handler_that_raised_may_succeed_later(handling, dlq, store):
    answers = [KeyError("a"), Discard("a duplicate")]

    @dlq.handler(where=Filter(task="charge"))
    def repair(one):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    store.letters.save([letter("a")])
    handling.work_off()
    assert states(store) == {"a": "queued"}
    let_pass(store, due_at=T0)
    handling.work_off()
    assert states(store) == {"a": "done"}


def test_a_verdict_that_is_wrong_is_not_asked_for_again(handling, dlq, store):
    @dlq.handler(where=Filter(task="charge"))
    def repair(one):
        return None

    store.letters.save([letter("a")])
    handling.work_off()
    assert states(store) == {"a": "failed"}


def test_letters_that_are_sent_back_have_one_operation(handling, dlq, store):
    @dlq.handler(where=Filter(task="charge"), version="2.1")
    def repair(one):
        return Redrive(kwargs={"currency": "EUR"})

    store.letters.save([letter("a"), letter("b")])
    handling.work_off()
    [made] = store.operations.find()
    assert (made.who, made.detached, made.counts.planned) == ("auto:repair", True, 2)
    assert made.orders.why == "verdict of handler repair, version 2.1"
    assert sorted(made.wanted.ids) == ["a", "b"]
    assert {row.operation for row in store.automations.find().rows} == {made.id}
    assert store.letters.get("a").kwargs == {"currency": "EUR"}
    assert [change.who for change in store.edits.of_letter("a")] == ["auto:repair"]
    dlq.redrives.carry_on(made.id, lambda: False)
    assert store.letters.get("a").state is State.REDRIVEN


def test_killed_before_its_operation_was_made_a_verdict_is_not_lost(
    handling, dlq, store, monkeypatch
):
    @dlq.handler(where=Filter(task="charge"))
    def repair(one):
        return Redrive()

    store.letters.save([letter("a")])
    handling.dispatch()
    [message] = handling.sent()
    handling.run(message)
    with monkeypatch.context() as patch:
        patch.setattr(type(dlq.redrives), "draft", _away)
        with pytest.raises(StoreUnavailable):
            handling.dispatch()
    assert store.operations.find() == []
    handling.dispatch()
    handling.dispatch()
    assert len(store.operations.find()) == 1


def test_the_first_handler_that_does_not_leave_a_letter_wins(handling, dlq, store):
    order = []

    @dlq.handler(where=Filter(task="charge"))
    def look(one):
        order.append("look")
        return Leave()

    @dlq.handler(where=Filter(task="charge", exception="ValueError"))
    def close(one):
        order.append("close")
        return Discard("a duplicate")

    @dlq.handler(all=True)
    def never(one):
        order.append("never")
        return Leave()

    store.letters.save([letter("a")])
    handling.work_off()
    assert order == ["look", "close"]


def test_1_000_letters_of_one_group_make_one_ticket(handling, dlq, store):
    made = []

    @dlq.handler(where=Filter(task="charge"), once_per_group=True)
    def ticketing(one):
        made.append(one.task_id)
        return Ticket(f"https://t/{len(made)}")

    store.letters.save([letter(f"a{number:03}") for number in range(1_000)])
    assert handling.work_off() == 1
    assert made == ["a000"]
    [ticket] = store.tickets.of_groups(["9c1e0000deadbeef"])["9c1e0000deadbeef"]
    assert ticket.url == "https://t/1"


def test_a_group_without_a_ticket_gives_the_handler_its_next_letter(handling, dlq, store):
    @dlq.handler(where=Filter(task="charge"), once_per_group=True)
    def ticketing(one):
        if one.task_id == "a":
            return None
        assert one.ticket is None
        return Ticket("https://t/1")

    store.letters.save([letter("a"), letter("b", attempt(minutes=1)), letter("c")])
    handling.work_off()
    assert states(store) in ({"a": "failed", "b": "done"}, {"a": "failed", "c": "done"})


def test_a_worker_with_other_code_leaves_the_message_to_others(handling, dlq, store, caplog):
    @dlq.handler(where=Filter(task="charge"))
    def repair(one):
        return Leave()

    store.letters.save([letter("a")])
    handling.dispatch()
    [message] = handling.sent()
    mine = dlq.handlers.pop("repair")
    handling.run(message)
    assert "this worker has no handler repair in version 1" in caplog.text
    assert states(store) == {"a": "queued"}
    dlq.handlers["repair"] = mine
    handling.run(message)
    assert states(store) == {"a": "done"}


def test_a_store_that_is_away_leaves_the_handling_to_another_try(
    handling, dlq, store, caplog, monkeypatch
):
    @dlq.handler(where=Filter(task="charge"))
    def repair(one):
        return Leave()

    store.letters.save([letter("a")])
    handling.dispatch()
    [message] = handling.sent()
    with monkeypatch.context() as patch:
        patch.setattr(type(store.automations), "end", _away)
        handling.run(message)
    assert "could not be finished: away" in caplog.text
    [row] = store.automations.find().rows
    assert row.state is HandlingState.RUNNING
    let_pass(store, due_at=T0)
    assert handling.work_off() == 1
    assert states(store) == {"a": "done"}


def test_a_verdict_that_the_store_refuses_is_not_asked_for_again(handling, dlq, store, monkeypatch):
    @dlq.handler(where=Filter(task="charge"))
    def repair(one):
        return Redrive(args=["x" * 100])

    def refuse(*_args, **_options):
        raise RecordRefused("The message is too large")

    store.letters.save([letter("a")])
    monkeypatch.setattr(store.automations, "end", refuse)
    handling.work_off()
    [row] = store.automations.find().rows
    assert (row.state, row.error) == (
        HandlingState.FAILED, "its verdict cannot be stored: The message is too large",
    )  # fmt: skip


def test_letters_are_looked_at_from_the_last_look_on_and_all_now_and_then(
    handling, dlq, store, monkeypatch
):
    @dlq.handler(where=Filter(task="charge"))
    def repair(one):
        return Leave()

    looks = []
    candidates = store.automations.candidates

    def note(*args, since, **options):
        looks.append(since)
        return candidates(*args, since=since, **options)

    monkeypatch.setattr(store.automations, "candidates", note)
    store.letters.save([letter("a")])
    handling.dispatch()
    before = store.now()
    assert handling.dispatch() == dispatcher.LOOK_S
    handling.dispatch()
    handling.time = dispatcher.SWEEP_S
    handling.dispatch()
    first, second, third, fourth = looks
    assert (first, second, fourth) == (None, None, None)
    assert third >= before - dispatcher.OVERLAP


def test_a_lost_lease_ends_the_round(handling, dlq, store, other_lease):
    for name in ("one", "two"):
        dlq.handler(where=Filter(task="charge"), name=name)(lambda one: Leave())
    store.letters.save([letter("a")])
    assert handling.engine.run(handling.lease, lambda: other_lease) == 0.0
    assert {row.name for row in store.automations.find().rows} == {"one"}


def _rows(store):
    stored = tables.handling.select()
    return store.database.read(lambda connection: connection.execute(stored).mappings().all())


def _away(*_args, **_options):
    raise StoreUnavailable("away")
