"""Properties that are put together from texts are those that py-amqp writes, byte for byte."""

from __future__ import annotations

import pytest
from amqp import Message
from celery import Celery
from claimed import HEADERS, OTHERS, PROPERTIES, claimed, extra, properties, values
from hypothesis import given
from hypothesis import strategies as st
from kombu import Producer
from kombu.transport.pyamqp import Channel

from celery_dlq.redrive.message import prepared
from celery_dlq.redrive.spliced_tables import spliced_properties


class NoBroker(Channel):
    def __init__(self): ...

    def __del__(self): ...


def by_amqp(one):
    message, _, _ = prepared(Producer(NoBroker(), auto_declare=False), one)
    return Message._serialize_properties(message)


def by_us(one):
    made = spliced_properties(one, 2)
    # Once more, from what is kept of the first time.
    assert spliced_properties(one, 2) == made
    return made


@given(extra | st.dictionaries(st.text(max_size=3), values, max_size=9), properties)
def test_what_is_spliced_is_what_py_amqp_writes(more, given_properties):
    one = claimed({**HEADERS, **more}, given_properties)
    made = by_us(one)
    assert made is None or made == by_amqp(one)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"group_index": 2**40, "ignore_result": True, "ratio": 0.5, "timelimit": [300, 250.5]},
        {"argsrepr": "('\"é', 'b,', \"a\\\\\", '\ud800')", "origin": "é@box"},
        {"argsrepr": "x" * 2_000, "kwargsrepr": "{'x': " + "'\"'" * 2_000 + "}"},
        {"stamps": {"a": {"b": [1, {}]}}, "empty": "", "": [], "ü": None, "quoted\"name'": 1},
        {"0": 0, "1": False, "2": 0.0, "3": [0], "4": [False], "5": "0", "6": "null"},
    ],
    ids=["", "numbers", "escaped", "long", "nested", "alike"],
)
@pytest.mark.parametrize("given_properties", [PROPERTIES, {"correlation_id": "", "priority": 0}])
def test_the_messages_that_celery_writes_are_spliced(more, given_properties):
    one = claimed({**HEADERS, **more}, given_properties)
    made = by_us(one)
    assert made is not None
    assert made == by_amqp(one)


def test_a_message_of_celery_itself_is_spliced():
    app = Celery("unit", broker="memory://", set_as_current=False)
    message = app.amqp.as_task_v2("0d3f", "shop.charge", ('O"Neil', b"\xff"), {"a": "b"}, retries=2)
    one = claimed(message.headers, message.properties)
    made = by_us(one)
    assert made is not None
    assert made == by_amqp(one)


def test_headers_of_which_none_follows_the_opening_are_spliced():
    opening = {name: HEADERS[name] for name in ("task", "id", "retries", "eta", "expires")}
    one = claimed(opening)
    assert by_us(one) == by_amqp(one)


@pytest.mark.parametrize(
    "more",
    [
        {"argsrepr": "(17,", "kwargsrepr": "{}"},
        {"stamped_headers": ["a", "b"]},
        {"stamps": {"a": 1, "b": 2}},
        {"a": ",", "b": ",", "c": ",,"},
    ],
    ids=["comma", "texts", "table", "commas"],
)
def test_what_cannot_be_taken_apart_is_read(more):
    assert by_us(claimed({**HEADERS, **more})) is None


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_other_letters_are_read(other):
    assert by_us(other) is None


@pytest.mark.parametrize("more", [{"n" * 300: "x"}, {"number": 2**70}])
def test_what_amqp_cannot_say_is_an_error(more):
    with pytest.raises(Exception, match=r"."):
        spliced_properties(claimed({**HEADERS, **more}), 2)
