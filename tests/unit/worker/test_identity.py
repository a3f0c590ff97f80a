import uuid
from types import SimpleNamespace

import pytest

from celery_dlq.model.headers import LETTER_HEADER
from celery_dlq.worker.identity import letter_id, name_of


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


def request(number="4711", body=b"[]", tag="t", redelivered=False, sqs=False, **headers):
    info = {"redelivered": redelivered, **({"sqs_message": {}} if sqs else {})}
    properties = {} if tag is None else {"delivery_tag": tag}
    return SimpleNamespace(
        id=number, type="charge", request_dict={"retries": 0, **headers},
        message=SimpleNamespace(headers=headers, properties=properties, delivery_info=info, body=body),
    )  # fmt: skip


def test_a_message_has_one_name_for_all_its_deliveries():
    assert name_of(request()) == name_of(request(redelivered=True))
    assert name_of(request(tag=None, body="[]")) == name_of(request(tag=None, body="[]"))


@pytest.mark.parametrize("other", [
    {"number": "4712"}, {"body": b"[1]"}, {"tag": "u"}, {"retries": 1}, {"x-dlq-redrive": 1},
    {"x-dlq-release": "here.abc/1"},
], ids=str)  # fmt: skip
def test_a_retry_a_redrive_and_a_release_have_names_of_their_own(other):
    assert name_of(request()).text != name_of(request(**other)).text


@pytest.mark.parametrize(("made", "exact"), [
    (request(), True), (request(tag=None), False), (request(tag=7), False),
    (request(sqs=True), False),
])  # fmt: skip
def test_a_name_is_exact_where_the_transport_has_given_it(made, exact):
    assert name_of(made).exact is exact


def test_on_sqs_the_tag_of_a_delivery_is_no_part_of_the_name():
    assert name_of(request(sqs=True)) == name_of(request(sqs=True, tag="other"))
