"""A message that is put together from texts means what kombu would have written."""

from __future__ import annotations

import json

import pytest
from claimed import HEADERS, OF_CELERY, OTHERS, OURS, claimed, extra, properties, texts
from hypothesis import given
from hypothesis import strategies as st
from kombu import Producer
from kombu.transport.redis import Channel
from kombu.utils.json import dumps

from celery_dlq.headers import DELIVERY_HEADERS
from celery_dlq.redrive.message import prepared
from celery_dlq.redrive.spliced import spliced


class NoRedis(Channel):
    """kombu's channel, and no server."""

    def __init__(self):
        self.closed, self.connection = True, None
        self._next_delivery_tag = lambda: "tag"


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
    one = claimed({**HEADERS, **more}, given_properties, body=body, queue=queue or "celery")
    made = by_us(one)
    assert made is None or made == by_kombu(one)


@pytest.mark.parametrize(
    "given_properties",
    OF_CELERY,
    ids=str,
)
def test_the_messages_that_celery_writes_are_spliced(given_properties):
    one = claimed(properties=given_properties, body=bytes(range(256)))
    made = by_us(one)
    assert made is not None
    assert made == by_kombu(one)


@pytest.mark.parametrize("name", [*OURS, *DELIVERY_HEADERS, "compression"])
def test_headers_that_are_not_sent_as_they_are_are_left_to_kombu(name):
    assert by_us(claimed({**HEADERS, name: "1"})) is None


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_other_letters_are_left_to_kombu(other):
    assert by_us(other) is None
