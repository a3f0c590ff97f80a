"""``dlq forget --subject`` destroys the key of a person, so that nobody can read copies elsewhere."""

from __future__ import annotations

import base64
import json

import pytest
from support.factories import T0, envelope, letter

from celery_dlq.model.states import State
from celery_dlq.store.base import Filter

WHY = ("--why", "request 12")


@pytest.fixture
def app(shop_app, tmp_path):
    place = tmp_path / "archive"
    place.mkdir()
    key = base64.b64encode(b"k" * 32).decode()
    shop_app.conf.update(dlq_encryption_keys={"2026": key}, dlq_archive_url=f"file://{place}")
    return shop_app


@pytest.fixture
def letters(store):
    """Two letters of customer 7, one of them closed, and one of customer 8."""
    store.letters.save([about(7, "a1"), about(7, "b1"), about(8, "c1")])
    store.closing.discard(Filter(ids=("b1",)), who="ann", why="paid", now=T0)
    return store


def about(customer, task_id):
    body = json.dumps([[customer], {}, {}]).encode()
    message = envelope(task_id, body=body, headers={"id": task_id, "task": "shop.charge"})
    return letter(task_id, subject=f"customer {customer}", args=[customer], envelope=message)


def left(store):
    found = store.letters.find(Filter(states=frozenset(State))).letters
    return sorted(one.task_id for one in found)


def test_the_letters_and_the_key_are_gone(run, letters):
    result = run("forget", "--subject", "customer 7", *WHY, "--yes")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "Erased 2 dead letters in the store; the key of the person.\n"
    assert left(letters) == ["c1"]
    assert not letters.keys.has_person(letters.keys.person_id("customer 7"))
    assert letters.letters.get("c1").args == [8]
    (act,) = letters.audit.find(act="forget").rows
    assert "customer" not in str(act.detail)


def test_letters_in_the_archive_can_no_longer_be_read(run, read, letters):
    result = run("archive", "run", "--all", "--yes")
    assert result.exit_code == 0, result.output
    assert read("archive", "show", "b1")["content"]["args"] == [7]
    result = run("forget", "--subject", "customer 7", *WHY, "--yes")
    assert result.exit_code == 0, result.stderr
    shown = run("archive", "show", "b1")
    assert "destroyed" in shown.output
    assert run("archive", "restore", "b1").exit_code != 0
    assert left(letters) == ["c1"]


def test_the_key_stays_while_a_retry_needs_it(run, letters):
    waiting = about(7, "d1").with_(state=State.PARKED, parking="here.1", due_at=T0)
    letters.parked.park([waiting], now=T0)
    result = run("forget", "--subject", "customer 7", *WHY, "--yes")
    assert result.exit_code == 4
    assert "d1" in result.stderr
    assert letters.keys.has_person(letters.keys.person_id("customer 7"))
    assert letters.letters.get("d1").args == [7]


def test_the_key_stays_while_a_letter_in_the_spool_needs_it(run, letters, queue):
    queue.spool.keep([about(7, "e1")])
    queue.spool.close()
    result = run("forget", "--subject", "customer 7", *WHY, "--yes")
    assert result.exit_code == 4
    assert "1 such letter" in result.stderr
    assert letters.keys.has_person(letters.keys.person_id("customer 7"))


def test_the_key_goes_while_letters_of_others_are_in_the_spool(run, letters, queue):
    queue.spool.keep([about(8, "e1")])
    queue.spool.close()
    result = run("forget", "--subject", "customer 7", *WHY, "--yes")
    assert result.exit_code == 0, result.stderr
    assert not letters.keys.has_person(letters.keys.person_id("customer 7"))


def test_a_person_without_letters_is_not_found(run, letters):
    result = run("forget", "--subject", "customer 9", *WHY, "--yes")
    assert (result.exit_code, result.stdout) == (0, "No dead letters match.\n")
    assert left(letters) == ["a1", "b1", "c1"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ("--subject", "x", "--task-id", "a1", *WHY),
            "Give either --task-id, --where or --subject.",
        ),
        (("--subject", "x"), "needs a reason"),
        (("--subject", "customer 7", *WHY), "There is no terminal to confirm on"),
    ],
)
def test_a_wrong_command_line_changes_nothing(run, letters, args, said):
    result = run("forget", *args)
    assert result.exit_code == 2
    assert said in result.stderr
    assert left(letters) == ["a1", "b1", "c1"]
