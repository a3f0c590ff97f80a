"""What is known of a message without reading its headers, and of which messages it is."""

from __future__ import annotations

import pytest
from celery import Celery
from claimed import HEADERS, OF_CELERY, OTHERS, OURS, claimed

from celery_dlq.headers import DELIVERY_HEADERS
from celery_dlq.redrive.as_written import as_written


def test_what_differs_between_messages_is_known():
    written = as_written(claimed())
    assert written is not None
    *known, headers, properties = written
    assert known == ["shop.charge", "0d3f", "t0k"]
    assert headers.startswith(',"lang":"py","shadow":null,')
    assert headers.endswith(',"stamps":{"a":1}}')
    assert properties.groups() == ("0d3f", "r", "6", "1")


@pytest.mark.parametrize(
    "properties",
    OF_CELERY,
    ids=str,
)
def test_the_properties_that_celery_writes_are_known(properties):
    written = as_written(claimed(properties=properties))
    assert written is not None
    assert {name: value for name, value in written[-1].groupdict().items() if value} == {
        name: str(value) for name, value in properties.items()
    }


def test_a_message_of_celery_itself_is_known():
    app = Celery("unit", broker="memory://", set_as_current=False)
    message = app.amqp.as_task_v2("0d3f", "shop.charge", (17,), {"a": "b"}, retries=2)
    assert as_written(claimed(message.headers, message.properties)) is not None


@pytest.mark.parametrize("name", [*OURS, *DELIVERY_HEADERS, "compression"])
def test_headers_that_are_not_sent_as_they_are_have_to_be_read(name):
    assert as_written(claimed({**HEADERS, name: "1"})) is None


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_other_letters_have_to_be_read(other):
    assert as_written(other) is None
