"""A message that is put together from texts means what kombu would have written."""

from __future__ import annotations

import json

import pytest
from celery import Celery
from factories import T0, envelope, letter
from hypothesis import given
from hypothesis import strategies as st
from kombu import Producer
from kombu.transport.redis import Channel
from kombu.utils.json import dumps

from celery_dlq import headers as known
from celery_dlq.codec import encode_table
from celery_dlq.redrive.message import prepared
from celery_dlq.redrive.spliced import spliced
from celery_dlq.states import State
from celery_dlq.written_table import OPENING, WrittenHeaders, WrittenTable, write_headers

HEADERS = {
    "lang": "py", "task": "shop.charge", "id": "0d3f", "shadow": None, "eta": None, "expires": None,
    "group": None, "group_index": None, "retries": 3, "timelimit": [None, None], "root_id": "0d3f",
    "argsrepr": "[{'id': \"17\"}]", "kwargsrepr": "{}", "origin": "gen1@box", "stamps": {"a": 1},
}  # fmt: skip
PROPERTIES = {"correlation_id": "0d3f", "reply_to": "r", "priority": 6, "delivery_mode": 1}

OURS = sorted(
    value for name, value in vars(known).items()
    if name.endswith("_HEADER") and isinstance(value, str)
)  # fmt: skip

names = st.sampled_from(
    [*OPENING, *OURS, *known.DELIVERY_HEADERS, "lang", "compression", "argsrepr", "ü"]
)
texts = st.sampled_from(["0d3f", '"retries":1', "\\", "", "é\ud800", '"x-dlq-redrive"', "{}"])
values = st.none() | st.integers(0, 3) | texts | st.binary(max_size=2) | st.lists(texts, max_size=2)
extra = st.dictionaries(names, values, max_size=3)
properties = st.fixed_dictionaries(
    {},
    optional={
        "correlation_id": texts, "reply_to": texts, "priority": st.integers(0, 12),
        "delivery_mode": st.sampled_from([1, 2]), "expiration": texts, "type": texts,
    },
)  # fmt: skip


class NoRedis(Channel):
    """kombu's channel, and no server."""

    def __init__(self):
        self.closed, self.connection = True, None
        self._next_delivery_tag = lambda: "tag"


def stored(message_headers=HEADERS, message_properties=PROPERTIES, **changes):
    """A letter as a claim gives it."""
    message = envelope(
        headers=WrittenHeaders(write_headers(message_headers)),
        properties=WrittenTable(encode_table(message_properties)),
        **changes,
    )
    return letter("0d3f", envelope=message, claim_token="t0k", state=State.CLAIMED)


def by_kombu(one):
    producer = Producer(NoRedis(), auto_declare=False)
    message, exchange, queue = prepared(producer, one)
    producer.channel._inplace_augment_message(message, exchange, queue)
    priority = producer.channel._get_message_priority(message, reverse=False)
    return priority, json.loads(dumps(message))


def by_us(one):
    made = spliced(one, 2, lambda: "tag")
    return None if made is None else (made.priority, json.loads(made.text))


@given(extra, properties, st.binary(max_size=9), texts)
def test_what_is_spliced_is_what_kombu_writes(more, given_properties, body, queue):
    one = stored({**HEADERS, **more}, given_properties, body=body, queue=queue or "celery")
    made = by_us(one)
    assert made is None or made == by_kombu(one)


@pytest.mark.parametrize(
    "given_properties",
    [
        PROPERTIES,
        {"correlation_id": "c"},
        {"correlation_id": "c", "priority": 0},
        {"correlation_id": "c", "reply_to": "r", "delivery_mode": 2},
    ],
    ids=str,
)
def test_the_messages_that_celery_writes_are_spliced(given_properties):
    one = stored(message_properties=given_properties, body=bytes(range(256)))
    made = by_us(one)
    assert made is not None
    assert made == by_kombu(one)


def test_a_message_of_celery_itself_is_spliced():
    app = Celery("unit", broker="memory://", set_as_current=False)
    message = app.amqp.as_task_v2("0d3f", "shop.charge", (17,), {"a": "b"}, retries=2)
    assert by_us(stored(message.headers, message.properties)) is not None


@pytest.mark.parametrize("name", [*OURS, *known.DELIVERY_HEADERS, "compression"])
def test_headers_that_are_not_sent_as_they_are_are_left_to_kombu(name):
    assert by_us(stored({**HEADERS, name: "1"})) is None


@pytest.mark.parametrize(
    "other",
    [
        stored({**HEADERS, "x": b"bytes"}),
        stored({**HEADERS, "id": "another"}),
        stored({**HEADERS, "task": None}),
        stored(message_properties={**PROPERTIES, "expiration": "5000"}),
        stored(message_properties={}),
        stored(content_type=""),
        stored().with_(state=State.PARKED),
        stored().with_(due_at=T0),
        stored().with_(claim_token=None),
        stored().with_(envelope=envelope(headers=HEADERS)),
    ],
    ids=[
        "bytes", "id", "no task", "expiration", "no properties", "no type", "parked", "later",
        "unclaimed", "repaired",
    ],
)  # fmt: skip
def test_other_letters_are_left_to_kombu(other):
    assert by_us(other) is None
