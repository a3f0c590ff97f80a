"""Which circuit a message belongs to, whatever its arguments are."""

import functools
import threading

import pytest
from celery import Celery

from celery_dlq import DLQTask
from celery_dlq.classify import guarded
from celery_dlq.errors import SettingsError
from celery_dlq.worker.options import KEY_LIMIT, circuit_of


def key_of(task, args, kwargs):
    name = circuit_of(task, args, kwargs)
    return name and name[1]


@pytest.fixture
def make():
    def make(key, bind=False):
        app = Celery("unit", broker="memory://", set_as_current=False)

        def body(order, customer="nobody", **more): ...

        def bound_body(self, order, customer="nobody", **more): ...

        task = app.task(
            bound_body if bind else body, base=DLQTask, name="charge", bind=bind,
            shared=False, dlq_breaker_key=key, lazy=False,
        )  # fmt: skip
        app.finalize()
        return task

    return make


def test_without_the_option_all_messages_have_one(make):
    assert key_of(make(None), [1], {}) == ""


@pytest.mark.parametrize("bind", [False, True])
@pytest.mark.parametrize(
    ("form", "args", "kwargs", "key"),
    [
        ("{customer}", [1, "acme"], {}, "acme"),
        ("{customer}", [1], {"customer": "acme"}, "acme"),
        ("{customer}", [1], {}, "nobody"),
        ("{0}", [1], {}, "1"),
        ("{0}", [], {"order": 1}, "1"),
        ("{task}", [1], {"task": "a", "form": "b"}, "a"),
        ("{order[host]}:{customer}", [{"host": "a.example"}, 7], {}, "a.example:7"),
        ("{region}", [1], {"region": "eu"}, "eu"),
    ],
)
def test_a_format_names_arguments_as_the_body_does(make, bind, form, args, kwargs, key):
    assert key_of(make(form, bind), args, kwargs) == key


def test_a_format_names_the_arguments_of_the_message(make):
    """A base class may give the body further arguments, which no message has."""
    task = make("{customer}")
    task.__header__ = functools.partial(task.__header__, object())
    assert key_of(task, ["acme"], {}) == "acme"
    assert key_of(task, [], {}) == "nobody"


def test_a_function_is_called_with_the_arguments(make):
    assert key_of(make(lambda order, customer: customer.upper()), [1, "acme"], {}) == "ACME"


def test_a_function_may_say_that_a_message_has_none(make):
    assert key_of(make(lambda *_: None), [1], {}) is None
    assert key_of(make(lambda *_: "  "), [1], {}) is None


@pytest.mark.parametrize("key", [lambda: 1, lambda *_: 1 / 0, "{no_such}", "{5}"])
def test_one_that_fails_means_none_and_is_logged(make, caplog, key):
    assert key_of(make(key), [1], {}) is None
    assert "dlq_breaker_key of charge failed" in caplog.text


def test_one_that_hangs_means_none(make, caplog, monkeypatch):
    monkeypatch.setattr(guarded, "PATIENCE_S", 0.02)
    never = threading.Event()
    assert key_of(make(lambda *_: never.wait(60)), [1], {}) is None
    never.set()
    assert "took too long" in caplog.text


def test_long_keys_are_told_apart(make):
    task = make("{customer}")
    one, other = (key_of(task, [1, "x" * 500 + end], {}) for end in "ab")
    assert one != other
    assert len(one) == len(other) == KEY_LIMIT


@pytest.mark.parametrize("key", ["", 7, "customer", "{", "{}}"])
def test_what_is_no_key_is_refused_when_the_task_is_made(make, key):
    with pytest.raises(SettingsError, match="Task charge: dlq_breaker_key = "):
        make(key)
