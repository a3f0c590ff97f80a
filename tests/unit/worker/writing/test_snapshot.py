from types import SimpleNamespace

import pytest
from celery import Celery
from kombu import Exchange, Queue

from celery_dlq.worker.writing.snapshot import envelope


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
