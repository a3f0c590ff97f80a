import uuid
from types import SimpleNamespace

import pytest
from celery import Celery
from kombu import Exchange, Queue

from celery_dlq.model.headers import LETTER_HEADER
from celery_dlq.worker.message import (
    brokers_count,
    came_back,
    envelope,
    is_dropped_next,
    letter_id,
    name_of,
)


def message(headers=(), **properties):
    return SimpleNamespace(headers=dict(headers), properties=properties)


@pytest.mark.parametrize(
    ("own", "expected"),
    [("4711", "4711"), (4711, "4711"), ("", "tag"), ("  ", "tag"), (None, "tag"), (["a"], "tag"),
     ({}, "tag"), (True, "tag"), (b"x", "tag")],
)  # fmt: skip
def test_the_messages_own_id_where_it_is_usable_else_the_transports_tag(own, expected):
    assert letter_id(message(delivery_tag="tag"), own) == expected


def test_on_sqs_the_id_of_the_message_and_not_the_tag_of_its_delivery():
    came = message(delivery_tag="a receipt")
    came.delivery_info = {"sqs_message": {"MessageId": "m-1", "ReceiptHandle": "a receipt"}}
    assert (letter_id(came, None), letter_id(came, "4711")) == ("m-1", "4711")


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
    assert name_of(request())[0] != name_of(request(**other))[0]


@pytest.mark.parametrize(("made", "exact"), [
    (request(), True), (request(tag=None), False), (request(tag=7), False),
    (request(sqs=True), False),
])  # fmt: skip
def test_a_name_is_exact_where_the_transport_has_given_it(made, exact):
    assert name_of(made)[1] is exact


def test_on_sqs_the_tag_of_a_delivery_is_no_part_of_the_name():
    assert name_of(request(sqs=True)) == name_of(request(sqs=True, tag="other"))


def delivered_as(headers=None, **info):
    return SimpleNamespace(delivery_info=info, headers=headers)


def sqs(count):
    return delivered_as(sqs_message={"Attributes": {"ApproximateReceiveCount": count}})


@pytest.mark.parametrize(
    ("delivered", "back", "count"),
    [
        (delivered_as(), False, None),
        (delivered_as(redelivered=False), False, None),
        (delivered_as(redelivered=True), True, None),
        (delivered_as({"x-delivery-count": 2}, redelivered=True), True, 3),
        # RabbitMQ 4.3 counts failed deliveries and all others apart.
        (delivered_as({"x-delivery-count": 2, "x-acquired-count": 9}, redelivered=True), True, 3),
        (delivered_as({"x-acquired-count": 9}, redelivered=True), True, None),
        (delivered_as({"x-delivery-count": 2}, redelivered=False), False, None),
        (delivered_as({"x-delivery-count": "many"}, redelivered=True), True, None),
        (sqs("1"), False, 1),
        (sqs("4"), True, 4),
        (delivered_as(sqs_message="?"), False, None),
        (delivered_as(pgmq_message={"read_ct": 1}), False, 1),
        (delivered_as(pgmq_message={"read_ct": 4}), True, 4),
        (delivered_as(pgmq_message={}), False, None),
        (delivered_as(sqs_message={"Attributes": None}), False, None),
        (SimpleNamespace(delivery_info=None, headers=None), False, None),
    ],
)
def test_what_the_broker_says_of_earlier_deliveries(delivered, back, count):
    assert (came_back(delivered), brokers_count(delivered)) == (back, count)


@pytest.mark.parametrize(
    ("version", "given_back", "is_dropped"),
    [
        ("4.0.5", 19, True),
        ("4.0.5", 18, False),
        ("10.1", 19, True),
        ("3.13.7", 19, False),
        ("unknown", 19, False),
        (None, 19, False),
    ],
)
def test_rabbitmq_4_drops_messages_that_came_back_often(version, given_back, is_dropped):
    delivered = delivered_as({"x-delivery-count": given_back}, redelivered=True)
    properties = {} if version is None else {"version": version}
    connection = SimpleNamespace(server_properties=properties)
    delivered.channel = SimpleNamespace(connection=connection)
    assert is_dropped_next(delivered) is is_dropped


def test_other_transports_drop_none():
    delivered = sqs(100)
    delivered.channel = SimpleNamespace()
    assert not is_dropped_next(delivered)


@pytest.fixture
def app():
    app = Celery("unit", broker="memory://", set_as_current=False)
    app.conf.task_queues = [
        Queue("invoices", Exchange("shop", type="topic"), routing_key="invoice.*"),
        Queue("mail", Exchange("shop", type="topic"), routing_key="mail"),
        Queue("twin-a", Exchange("twins"), routing_key="twin"),
        Queue("twin-b", Exchange("twins"), routing_key="twin"),
    ]
    return app


def delivered(app, exchange, routing_key, **changes):
    values = {
        "body": b"[]",
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "headers": {"id": "a"},
        "properties": {},
        "delivery_info": {"exchange": exchange, "routing_key": routing_key},
    }
    return envelope(SimpleNamespace(**{**values, **changes}), app)


@pytest.mark.parametrize(
    ("exchange", "routing_key", "queue"),
    [
        ("", "celery", "celery"),
        ("shop", "mail", "mail"),
        ("shop", "invoice.eu", ""),
        ("twins", "twin", ""),
        ("elsewhere", "mail", ""),
        ("celery_delayed_delivery", ".".join("0" * 28) + ".mail", "mail"),
        ("celery_delayed_delivery", ".".join("0" * 28) + ".celery", "celery"),
    ],
)
def test_the_queue_is_named_only_when_it_is_certain(app, exchange, routing_key, queue):
    assert delivered(app, exchange, routing_key).queue == queue


def test_a_body_that_the_transport_decoded_is_bytes_again(app):
    body = delivered(app, "", "q", body="gr\u00fc\u00df", content_encoding="latin-1").body
    assert body == b"gr\xfc\xdf"
    assert delivered(app, "", "q", body=memoryview(b"\x00\xff")).body == b"\x00\xff"


def test_missing_parts_are_empty(app):
    made = delivered(app, None, None, headers=None, properties=None, content_type=None)
    assert (made.exchange, made.queue, made.headers, made.properties, made.content_type) == (
        "",
        "",
        {},
        {},
        "",
    )


def test_what_sqs_keeps_beside_a_message_is_kept_but_not_the_id_by_which_it_drops_duplicates(app):
    attributes = {"trace": {"DataType": "String", "StringValue": "abc"}}
    info = {"sqs_message": {"MessageAttributes": attributes, "Attributes": {"MessageGroupId": "g"}}}
    sent = {"MessageDeduplicationId": "once", "correlation_id": "c"}
    came = delivered(app, "", "q", delivery_info=info, properties=sent)
    assert came.properties == {
        "correlation_id": "c", "MessageGroupId": "g", "message_attributes": attributes,
    }  # fmt: skip
    came = delivered(app, "", "q", delivery_info=info, properties={"MessageGroupId": "own"})
    assert came.properties["MessageGroupId"] == "own"
