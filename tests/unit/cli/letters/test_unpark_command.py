from datetime import datetime, timezone

import pytest
from support.factories import letter, parking

from celery_dlq.model.states import State
from celery_dlq.store.base import Filter

PARKED = Filter(states=frozenset({State.PARKED}))


@pytest.fixture
def parked(store):
    """Two parked retries, due in hours, and a dead letter."""
    retries = [parking("a1", 9_000), parking("b1", 9_000, task="shop.mail")]
    store.parked.park(retries, now=datetime.now(timezone.utc))
    store.letters.save([letter("c1")])


def test_a_released_retry_is_due_on_the_apps_broker(run, parked, queue, store):
    result = run("unpark", "a1")
    assert (result.exit_code, result.stdout) == (
        0, "A worker will send 1 parked message now. See the others: celery dlq list --state parked\n",
    )  # fmt: skip
    assert store.parked.next_due(queue.hold.place) <= 0
    assert store.parked.next_due("here") > 8_000


def test_releasing_all_shows_examples_and_needs_yes(run, parked, store):
    assert run("unpark", "--all").exit_code == 2
    result = run("unpark", "--all", "--yes")
    assert "A worker will send 2 parked messages now." in result.stdout


def test_a_fingerprint_that_only_parked_retries_have_is_known(run, store):
    store.parked.park([parking("a1", 9_000, fingerprint="9c1e")], now=datetime.now(timezone.utc))
    assert "will send 1 parked message now" in run("unpark", "--group", "9c1e").stdout
    assert run("unpark", "--group", "typo").exit_code == 1


def test_a_letter_that_is_not_parked_is_named_and_left_alone(run, parked):
    result = run("unpark", "c1")
    assert result.exit_code == 1
    assert "c1 is dead and left alone" in result.stderr


def test_nothing_is_parked(run, store):
    result = run("unpark", "--all", "--yes")
    assert (result.exit_code, result.stdout) == (0, "No parked messages match.\n")


def test_parked_retries_are_listed_and_counted_separately(run, read, parked):
    assert "a1" not in run("list").stdout
    listed = read("list", "--state", "parked")
    assert [one["state"] for one in listed] == ["parked", "parked"]
    assert all(one["due_at"] for one in listed)
    shown = run("show", "a1").stdout
    assert "Why it is parked" in shown
    assert "Next attempt" in shown
    assert "to run it now: celery dlq unpark a1" in shown
    assert "2 parked" in run("stats").stdout


def test_a_redrive_does_not_take_parked_retries(run, parked, store):
    assert run("redrive", "a1").exit_code == 1
    assert store.counts.letters(PARKED) == 2


def test_parked_retries_are_discarded_on_request_only(run, parked, store):
    run("discard", "--all", "--yes", "--why", "x")
    assert store.counts.letters(PARKED) == 2
    result = run("discard", "--state", "parked", "--task", "mail", "--why", "cancelled")
    assert "Discarded 1 dead letter" in result.stdout
    assert store.letters.get("b1").state is State.DISCARDED


def test_the_doctor_warns_about_overdue_retries(run, store):
    assert "0 parked retries, none overdue" in run("doctor").stdout
    store.parked.park([parking("a1", -500)], now=datetime.now(timezone.utc))
    assert "unpark --all" in run("doctor").stdout
