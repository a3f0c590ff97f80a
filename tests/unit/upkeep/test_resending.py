"""Vanished messages of redrives, on a SQLite store, with a broker that holds what the test says."""

import threading
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from celery import Celery
from support.factories import T0, envelope, letter, operation

from celery_dlq import DLQTask, Settings
from celery_dlq.base.redact import Redactor
from celery_dlq.errors import RedriveError
from celery_dlq.model.operation import OperationState, Orders, Repair
from celery_dlq.model.states import State
from celery_dlq.redrive.broker.message import Sent, headers_to_send
from celery_dlq.redrive.broker.queues import Look
from celery_dlq.redrive.broker.trace import SENTRY_SENT_HEADER
from celery_dlq.redrive.letter import functions
from celery_dlq.redrive.letter.functions import functions_of
from celery_dlq.redrive.operation import app_and_broker_of
from celery_dlq.store.base import Filter
from celery_dlq.upkeep import resending as module
from celery_dlq.upkeep.resending import GAP_S, ROUND_S, Resender

AFTER_S = 7_200.0
#: Celery's name for this broker depends on its version.
HOME = app_and_broker_of(Celery("unit", broker="memory://", set_as_current=False))

NO_CHANGE = Repair()


class World:
    """The broker, the clocks and the lease, as the test sets them."""

    def __init__(self):
        self.now, self.monotonic_s = T0 + timedelta(hours=9), 1_000.0
        self.looks, self.looked, self.opened = {}, [], 0
        self.sent, self.answer = [], None
        self.has_lease, self.counted = True, 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def open_it(self, app):
        self.opened += 1
        return self

    def look(self, queue):
        self.looked.append(queue)
        found = self.looks.get(queue, Look(sees_workers=True))
        if isinstance(found, Exception):
            raise found
        return found

    def send(self, letters):
        self.sent += letters
        return self.answer or Sent(confirmed=[one.task_id for one in letters])

    def begin(self, letters):
        sent = self.send(letters)
        return lambda: sent


@pytest.fixture
def world(monkeypatch):
    world = World()
    monkeypatch.setattr(module, "open_presence", world.open_it)
    monkeypatch.setattr(module, "open_publisher", world.open_it)
    return world


@pytest.fixture
def store(own_store, world, monkeypatch):
    monkeypatch.setattr(own_store, "now", lambda: world.now)
    return own_store


@pytest.fixture
def app():
    app = Celery("unit", broker="memory://", set_as_current=False)

    @app.task(base=DLQTask, name="shop.late", acks_late=True, shared=False)
    def late(): ...

    @app.task(base=DLQTask, name="shop.charge", shared=False)
    def charge(): ...

    yield app
    app.close()


@pytest.fixture
def resender(app, store, world, monkeypatch):
    monkeypatch.setattr(module, "BATCH_SIZE", 2)
    meter = SimpleNamespace(sent_again=lambda number: setattr(world, "counted", number))
    dlq = SimpleNamespace(
        app=app, store=store, meter=meter, redactor=Redactor([]),
        hold=SimpleNamespace(vanished_after_s=AFTER_S), settings=Settings(),
    )  # fmt: skip
    return Resender(dlq, monotonic=lambda: world.monotonic_s)


@pytest.fixture
def look(resender, store, world):
    """One round."""

    def prolong():
        return store.leases.take("l", holder="me", seconds=60) if world.has_lease else None

    def look():
        resender.run(prolong)
        for _ in range(int(ROUND_S)):
            world.monotonic_s += 1
            resender.run(prolong)

    return look


def redriven(
    store, *letters, repair=NO_CHANGE, sent_s=-AFTER_S - 1, now=T0 + timedelta(hours=9), name="one"
):
    """The operation ``name`` has sent these letters, this many seconds from now."""
    store.letters.save(letters)
    store.operations.create(replace(operation(name), home=HOME, orders=Orders(repair=repair)))
    at = now + timedelta(seconds=sent_s)
    store.operations.move(name, OperationState.RUNNING, who="ann", now=at)
    lease, token = at + timedelta(minutes=2), f"first of {name}" if name != "one" else "first"
    store.claims.take(operation(name), token=token, lease_until=lease, limit=99, now=at)
    store.claims.confirm(name, token, {one.task_id: "" for one in letters}, now=at, is_all=True)


def again(store, task_id="a"):
    return store.sendings.of_letter(task_id)[-1].sent_again


def ids(world):
    return [one.task_id for one in world.sent]


def test_nothing_to_look_for_connects_to_nothing(look, world):
    look()
    assert world.opened == 0


def test_a_message_that_is_nowhere_is_sent_again_as_another_copy(look, store, world, caplog):
    redriven(store, letter("a"))
    look()
    (sent,) = world.sent
    headers = headers_to_send(sent)
    assert (headers["id"], headers["x-dlq-redrive"]) == ("a", 1)
    assert headers["x-dlq-copy"] not in ("", "first")
    assert (again(store), world.counted, world.looked) == (1, 1, ["celery"])
    assert "operation one: messages had vanished from the broker, and were sent again (1): a" in (
        caplog.text
    )


def test_many_are_sent_batch_by_batch_and_one_warning_names_some(look, store, world, caplog):
    redriven(store, *map(letter, "abcde"))
    look()
    assert sorted(ids(world)) == [*"abcde"]
    assert caplog.text.count("were sent again") == 3


def test_a_message_that_is_not_old_enough_is_left_alone(look, store, world):
    redriven(store, letter("a"), sent_s=-AFTER_S + 90)
    look()
    assert (world.sent, world.looked) == ([], [])
    world.now += timedelta(seconds=91)
    look()
    assert ids(world) == ["a"]


@pytest.mark.parametrize("repair", [Repair(countdown_s=600.0), Repair(eta=T0 + timedelta(hours=9))])
def test_a_message_that_had_to_wait_is_awaited_for_longer_and_then_sent_at_once(
    look, store, world, repair
):
    redriven(store, letter("a"), repair=repair)
    look()
    assert world.sent == []
    world.now += timedelta(seconds=AFTER_S + 1)
    look()
    (sent,) = world.sent
    assert headers_to_send(sent)["eta"] is None


@pytest.mark.parametrize(
    "seen", [None, Look(frozenset({("a", 1)}), sees_workers=True), Look(frozenset({("a", 1)}))]
)
def test_a_message_that_waits_or_may_wait_is_left_alone(look, store, world, seen):
    world.looks["celery"] = seen
    redriven(store, letter("a"))
    look()
    assert (world.sent, again(store)) == ([], 0)


def test_a_copy_of_another_redrive_does_not_count(look, store, world):
    world.looks["celery"] = Look(frozenset({("a", 2), ("b", 1)}))
    redriven(store, letter("a"))
    look()
    assert ids(world) == ["a"]


@pytest.mark.parametrize(
    ("task", "sees_workers", "is_sent"),
    [("shop.late", True, True), ("shop.late", False, False), ("shop.charge", True, False),
     ("shop.unknown", True, False)],
)  # fmt: skip
def test_a_copy_that_a_worker_accepted_is_sent_again_only_if_it_cannot_be_running(
    look, store, world, task, sees_workers, is_sent
):
    world.looks["celery"] = Look(sees_workers=sees_workers)
    redriven(store, letter("a", task=task, envelope=envelope(headers={"id": "a", "task": task})))
    assert store.sendings.accept([("a", 1, "first")]) == [True]
    look()
    assert [headers_to_send(one)["x-dlq-copy"] for one in world.sent] == ["first"] * is_sent
    assert again(store) == is_sent


def test_what_the_message_says_decides_which_task_runs(look, store, world):
    headers = {"id": "a", "task": "shop.charge"}
    redriven(store, letter("a", task="shop.late", envelope=envelope(headers=headers)))
    store.sendings.accept([("a", 1, "first")])
    look()
    assert (world.sent, again(store)) == ([], 0)


def test_the_changes_of_the_operation_are_made_again(look, store, world):
    repair = Repair(assignments=('kwargs.currency="EUR"',), to_queue="slow")
    redriven(store, letter("a"), repair=repair)
    look()
    assert world.looked == ["slow"]
    assert (world.sent[0].queue, b'"EUR"' in world.sent[0].envelope.body) == ("slow", True)


def test_changes_that_cannot_be_made_here_are_logged_once(look, store, world, caplog):
    redriven(store, letter("a"), repair=Repair(function="euros"))
    look()
    look()
    assert (world.sent, again(store)) == ([], 0)
    assert caplog.text.count("'euros' is not a repair of this app") == 1


def test_a_letter_that_its_change_leaves_out_is_not_counted(look, store, world, caplog):
    redriven(store, letter("a"), repair=Repair(assignments=('args.7="x"',)))
    look()
    assert (world.sent, again(store)) == ([], 0)
    assert "the vanished message of a is not sent again" in caplog.text


@pytest.mark.parametrize(
    ("answer", "counts"),
    [
        (Sent(uncertain=["a"], error="ConnectionResetError: gone"), 1),
        (Sent(unsent=["a"], error="ConnectionResetError: gone"), 0),
        (Sent(refused={"a": "no queue takes it any more"}), 0),
    ],
)
def test_what_was_certainly_not_sent_does_not_count(look, store, world, caplog, answer, counts):
    redriven(store, letter("a"))
    world.answer = answer
    look()
    assert again(store) == counts
    assert ("gone" in caplog.text) or ("no queue takes it any more" in caplog.text)


def test_sentry_learns_when_it_was_sent_again(store, world, look):
    headers = {"id": "a", "task": "shop.charge", SENTRY_SENT_HEADER: T0.timestamp()}
    redriven(store, letter("a", envelope=envelope("a", headers=headers)))
    look()
    [sent] = world.sent
    assert sent.envelope.headers[SENTRY_SENT_HEADER] > T0.timestamp() + AFTER_S


def test_a_process_that_is_killed_before_it_sends_has_counted(resender, store, world, monkeypatch):
    class Killed(BaseException):
        pass

    def send(letters):
        raise Killed

    redriven(store, letter("a"))
    monkeypatch.setattr(world, "send", send)
    lease = store.leases.take("l", holder="me", seconds=60)
    resender._called_at = world.monotonic_s
    with pytest.raises(Killed):
        resender.run(lambda: lease)
    assert again(store) == 1
    monkeypatch.undo()
    monkeypatch.setattr(module, "open_publisher", world.open_it)


def test_it_ends_after_three_more_copies(look, store, world):
    redriven(store, letter("a"))
    for _ in range(6):
        look()
        world.now += timedelta(seconds=AFTER_S + 1)
    assert (len(world.sent), again(store)) == (3, 3)
    assert len({headers_to_send(one)["x-dlq-copy"] for one in world.sent}) == 3
    assert store.counts.letters(Filter(states=frozenset({State.REDRIVEN}))) == 1


def test_without_the_lease_nothing_is_sent(look, store, world):
    redriven(store, letter("a"))
    world.has_lease = False
    look()
    assert (world.sent, again(store)) == ([], 0)


def test_a_broker_that_does_not_answer_is_logged_once_and_asked_again(look, store, world, caplog):
    redriven(store, letter("a"))
    world.looks["celery"] = RedriveError("The broker does not say")
    look()
    look()
    assert caplog.text.count("are not sent again: The broker does not say") == 1
    del world.looks["celery"]
    look()
    assert ids(world) == ["a"]


def test_more_than_one_round_can_look_for_are_looked_for_in_turn(look, store, world, monkeypatch):
    monkeypatch.setattr(module, "AT_ONCE", 2)
    world.looks["celery"] = Look(frozenset({("a", 1), ("b", 1), ("c", 1)}))
    redriven(store, *map(letter, "abcd"))
    look()
    assert world.sent == []
    look()
    assert ids(world) == ["d"]


def test_after_the_store_was_away_workers_have_a_round_s_time_to_report(resender, store, world):
    def run():
        resender.run(lambda: store.leases.take("l", holder="me", seconds=60))

    redriven(store, letter("a"))
    run()
    world.monotonic_s += GAP_S + 0.1
    run()
    for _ in range(int(ROUND_S) - 1):
        world.monotonic_s += 1
        run()
    assert world.sent == []
    world.monotonic_s += 2
    run()
    assert ids(world) == ["a"]


def test_a_repair_that_hangs_keeps_no_message_of_another_operation(
    app, store, world, look, monkeypatch, caplog
):
    monkeypatch.setattr(functions, "TIMEOUT_S", 0.01)
    monkeypatch.setattr(functions, "MOST_HUNG", 1)
    end = threading.Event()
    functions_of(app).repairs["hangs"] = lambda *_: end.wait()
    redriven(store, letter("a"), letter("b"), repair=Repair(function="hangs"), name="one")
    redriven(store, letter("c"), name="two")
    look()
    end.set()
    assert ids(world) == ["c"]
    assert (again(store, "a"), again(store, "b"), again(store, "c")) == (0, 0, 1)
    assert "operation one: 1 calls did not end within" in caplog.text
