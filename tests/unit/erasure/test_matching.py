"""Letters are recognised by their messages, and those that cannot be read are named."""

from __future__ import annotations

import json

import pytest
from celery import Celery
from support.factories import bomb, envelope, letter
from support.stores.archives import a_line

from celery_dlq.erasure.condition import Condition
from celery_dlq.erasure.matching import Matcher, parameters_of


def body(*args, **kwargs):
    return json.dumps([args, kwargs, {}]).encode()


def matcher(*conditions, ids=(), parameters=lambda _name: ["user_id"]):
    return Matcher(
        ids, [*map(Condition.parse, conditions)],
        accepted=frozenset({"application/json"}), parameters=parameters,
    )  # fmt: skip


def letter_of(*args, **kwargs):
    return letter("a", envelope=envelope("a", body=body(*args, **kwargs)))


def test_all_conditions_must_hold():
    both = matcher("args.user_id=7", "kwargs.tenant=acme")
    assert both.is_letter(letter_of(7, tenant="acme"))
    assert not both.is_letter(letter_of(7, tenant="other"))
    assert not both.is_letter(letter_of(8, tenant="acme"))


def test_ids_are_compared_as_they_are_stored():
    long = "x" * 300
    assert matcher(ids=[long]).is_letter(letter(long))
    assert not matcher(ids=[long]).is_letter(letter("x" * 299))


def test_a_letter_whose_message_had_the_value_before_an_edit_is_meant():
    message = {"headers": "{}", "properties": "{}", "content_type": "application/json",
               "content_encoding": "utf-8", "exchange": "", "routing_key": "", "queue": ""}  # fmt: skip
    line = a_line(content_type="application/json")
    line["letter"] |= {"content_type": "application/json", "content_encoding": "utf-8"}
    line["content"]["body"] = "W1s4XSwge30sIHt9XQ=="  # [[8], {}, {}]
    assert not matcher("args[0]=7").is_line(line)
    line["changes"] = [{**message, "body": "W1s3XSwge30sIHt9XQ=="}]  # [[7], {}, {}]
    assert matcher("args[0]=7").is_line(line)


def test_the_task_that_the_message_names_says_what_its_arguments_are_called():
    asked = []
    matcher("args.user_id=7", parameters=asked.append).is_letter(
        letter("a", task="shop.other", envelope=envelope("a", body=body()))
    )
    assert asked == ["shop.charge"]


def test_a_letter_of_an_unknown_task_is_named():
    one = matcher("args.user_id=7", parameters=lambda _name: None)
    assert not one.is_letter(letter_of(7))
    assert "the names of its arguments are unknown" in one.unread["a"]


@pytest.mark.parametrize(
    "unreadable",
    [
        letter("a", envelope=envelope("a", body=b"\xff")),
        letter("a", envelope=envelope("a", content_type="application/x-python-serialize")),
        bomb(300_000_000, "a"),
    ],
    ids=["no text", "pickle", "bomb"],
)
def test_a_letter_that_cannot_be_read_is_named(unreadable):
    one = matcher("args.user_id=7")
    assert not one.is_letter(unreadable)
    assert one.unread["a"]


def test_by_id_nothing_is_read():
    one = matcher(ids=["a"])
    assert one.is_letter(letter("a", envelope=envelope("a", body=b"\xff")))
    assert one.unread == {}


def test_the_parameters_of_a_task_are_the_positional_ones():
    app = Celery(set_as_current=False)

    @app.task(name="one", bind=True)
    def one(self, user_id, email="", *rest, only=1, **more):
        raise NotImplementedError

    app.finalize()
    assert parameters_of(app, "one") == ["user_id", "email"]
    assert parameters_of(app, "other") is None
