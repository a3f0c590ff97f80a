"""What the doctor says about messages that the broker does not take."""

import json
from datetime import datetime, timedelta, timezone

import pytest
from support.factories import parking, unsent

from celery_dlq import DLQTask


@pytest.fixture
def doctor(run):
    return lambda: json.loads(run("doctor", "--format", "json").stdout)


@pytest.fixture
def said(doctor):
    """The findings of the check."""

    def said():
        return [(one["result"], one["text"]) for one in doctor() if one["check"] == "unsent"]

    return said


def park(store, *letters):
    store.parked.park(letters, now=datetime.now(timezone.utc))


def test_without_the_option_and_without_messages_it_says_nothing(said):
    assert said() == []


def test_with_the_option_it_says_for_which_broker(said, app, queue):
    app.conf.dlq_unsent = "store"
    [(level, text)] = said()
    assert level == "ok"
    assert f"for workers on the broker {queue.hold.place}; run doctor where" in text


def test_one_task_with_the_option_is_enough(said, app):
    @app.task(base=DLQTask, name="shop.urgent", dlq_unsent="store", shared=False)
    def urgent():
        return None

    assert len(said()) == 1


def test_tasks_of_another_class_may_run_twice(said, app):
    @app.task(name="shop.plain", shared=False)
    def plain():
        return None

    app.conf.dlq_unsent = "store"
    _, (level, text) = said()
    assert (level, text.partition(":")[0]) == ("warning", "shop.plain")
    assert "it may run twice" in text


def test_messages_that_have_just_come_are_no_reason_to_worry(said, store):
    park(store, unsent("a1", last_failed_at=store.now()))
    assert said() == [("ok", "1 unsent message will be sent to the broker here")]


def test_messages_that_wait_for_long_point_to_the_broker(said, store, queue):
    before = store.now() - timedelta(minutes=10)
    park(store, unsent("a1", place=queue.hold.place, last_failed_at=before))
    [(level, text)] = said()
    assert level == "warning"
    assert text.startswith("1 unsent message, the first of them not sent for 10m")
    assert "no worker on it runs" in text


def test_messages_for_another_address_name_the_next_step(said, store, queue):
    before = store.now() - timedelta(minutes=10)
    park(store, *(unsent(name, last_failed_at=before) for name in ("a1", "a2")))
    [(level, text)] = said()
    assert level == "warning"
    assert text.startswith("2 unsent messages for the broker here, the first of them not sent for ")
    assert "set the same broker_url" in text
    assert text.endswith("dlq unpark --reason unsent")


def test_they_are_not_called_retries(doctor, store):
    park(store, unsent("a1", -900.0), parking("r1", 9_000))
    texts = [one["text"] for one in doctor() if one["check"] == "parked"]
    assert texts == ["1 parked retry, none overdue"]
