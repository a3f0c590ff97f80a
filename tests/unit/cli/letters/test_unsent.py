"""Messages that the broker did not take, on the command line."""

from datetime import datetime, timezone

import pytest
from support.factories import envelope, letter, parking, unsent

from celery_dlq.model.headers import RELEASE_HEADER, doubtful_parking
from celery_dlq.model.states import Reason, State
from celery_dlq.store.base import Filter
from celery_dlq.store.rows import rows

PARKED = Filter(states=frozenset({State.PARKED}))


def doubtful(task_id, due_in_s):
    """A message that the broker may have taken."""
    named = doubtful_parking("here", "m1")
    headers = {"id": task_id, "task": "shop.charge", RELEASE_HEADER: f"{named}/1"}
    return unsent(
        task_id, due_in_s, parking=named, envelope=envelope(task_id, headers=headers)
    )  # fmt: skip


@pytest.fixture
def waiting(store):
    """Two unsent messages, a parked retry, and a dead letter."""
    letters = [unsent("a1"), unsent("b1", task="shop.mail"), parking("r1", 9_000)]
    store.parked.park(letters, now=datetime.now(timezone.utc))
    store.letters.save([letter("c1")])


def test_the_reason_finds_them_without_a_state(run, read, waiting):
    assert {one["task_id"] for one in read("list", "--reason", "unsent")} == {"a1", "b1"}
    assert {one["task_id"] for one in read("list", "--reason", "parked")} == {"r1"}
    assert {one["task_id"] for one in read("list")} == {"c1"}
    assert read("list", "--reason", "unsent", "--state", "dead") == []
    table = run("list", "--reason", "unsent", "--format", "csv").stdout
    assert table.count("unsent") == 2


def test_one_says_why_it_was_not_sent_and_what_happens_next(run, waiting):
    shown = run("show", "a1").stdout
    assert "Why it was not sent" in shown
    assert "unsent: the broker did not take it from its sender" in shown
    assert "Connection refused" in shown
    assert "as soon as the broker takes it" in shown
    assert "Next attempt" not in shown
    assert "Next: nothing, a worker sends it as soon as the broker takes it; " in shown
    assert "celery dlq unpark a1" in shown


def test_one_that_the_broker_may_have_says_until_when_it_waits(run, store):
    store.parked.park([doubtful("d1", 60.0)], now=datetime.now(timezone.utc))
    shown = " ".join(run("show", "d1").stdout.split())
    assert "unless a worker says before that it has it" in shown


def test_one_may_be_sent_by_the_apps_workers(run, store, queue, waiting):
    result = run("unpark", "--reason", "unsent", "--yes")
    assert "A worker will send 2 parked messages now." in result.stdout
    assert store.parked.next_due(queue.hold.place) <= 0
    assert store.parked.next_due("here") > 8_000


def test_one_that_the_broker_may_have_is_not_moved_before_it_is_due(run, store, queue):
    store.parked.park([doubtful("d1", 60.0)], now=datetime.now(timezone.utc))
    result = run("unpark", "d1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "are being sent, or may have been sent" in result.stderr


def test_one_that_the_broker_may_have_is_moved_once_it_is_due(run, store, queue, monkeypatch):
    monkeypatch.setattr(rows, "DOUBT_S", -60.0)
    store.parked.park([doubtful("d1", -1.0)], now=datetime.now(timezone.utc))
    assert run("unpark", "d1").exit_code == 0
    assert store.parked.next_due(queue.hold.place) <= 0


def test_discarded_by_the_reason_it_stays_a_letter_that_was_not_sent(run, read, store, waiting):
    result = run("discard", "--reason", "unsent", "--yes", "--why", "orders were cancelled")
    assert "Discarded 2 dead letters" in result.stdout
    assert [one.task_id for one in store.letters.find(PARKED, limit=9).letters] == ["r1"]
    found = store.letters.get("a1")
    assert (found.state, found.reason) == (State.DISCARDED, Reason.UNSENT)
    assert store.letters.get("c1").state is State.DEAD
    assert "Why it was not sent" in run("show", "a1").stdout

    assert run("discard", "--undo", "a1").exit_code == 0
    assert "Next: celery dlq redrive a1" in run("show", "a1").stdout


def test_a_redrive_does_not_take_them(run, read, waiting):
    result = run("redrive", "--reason", "unsent", "--yes")
    assert "claimed or redriven already" not in result.stdout + result.stderr
    assert len(read("list", "--reason", "unsent")) == 2


def test_a_monitor_counts_them(run, waiting):
    said = run("check", "--reason", "unsent", "--max-depth", "1").stdout
    assert said.startswith("DLQ CRITICAL - 2 letters")


def test_a_person_in_one_is_named(run, waiting):
    result = run("forget", "--task-id", "a1", "--yes", "--why", "x")
    assert "These wait in the store to be sent, and stay: a1." in result.stdout + result.stderr
