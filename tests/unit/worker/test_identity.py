import uuid
from types import SimpleNamespace

import pytest

from celery_dlq.headers import LETTER_HEADER
from celery_dlq.worker.identity import letter_id


def message(headers=(), **properties):
    return SimpleNamespace(headers=dict(headers), properties=properties)


@pytest.mark.parametrize(
    ("own", "expected"),
    [("4711", "4711"), (4711, "4711"), ("", "tag"), ("  ", "tag"), (None, "tag"), (["a"], "tag"),
     ({}, "tag"), (True, "tag"), (b"x", "tag")],
)  # fmt: skip
def test_the_messages_own_id_where_it_is_usable_else_the_transports_tag(own, expected):
    assert letter_id(message(delivery_tag="tag"), own) == expected


def test_a_message_id_where_the_transport_has_no_tag():
    assert letter_id(message(message_id="from-the-sender"), None) == "from-the-sender"


def test_a_new_id_where_nothing_names_the_message():
    first, second = letter_id(message(), None), letter_id(message(), None)
    assert uuid.UUID(first) != uuid.UUID(second)


def test_what_was_sent_again_belongs_to_the_letter_that_it_names():
    again = message({LETTER_HEADER: "kept-as"}, delivery_tag="new")
    assert letter_id(again, "x" * 300) == "kept-as"
    assert letter_id(message({LETTER_HEADER: 7.5}, delivery_tag="tag"), None) == "tag"
