"""What the broker says of earlier deliveries of a message."""

from types import SimpleNamespace

import pytest

from celery_dlq.worker.redelivery import brokers_count, came_back


def message(headers=None, **info):
    return SimpleNamespace(delivery_info=info, headers=headers)


def sqs(count):
    return message(sqs_message={"Attributes": {"ApproximateReceiveCount": count}})


@pytest.mark.parametrize(
    ("delivered", "back", "count"),
    [
        (message(), False, None),
        (message(redelivered=False), False, None),
        (message(redelivered=True), True, None),
        (message({"x-delivery-count": 2}, redelivered=True), True, 3),
        (message({"x-delivery-count": 2}, redelivered=False), False, None),
        (message({"x-delivery-count": "many"}, redelivered=True), True, None),
        (sqs("1"), False, 1),
        (sqs("4"), True, 4),
        (message(sqs_message="?"), False, None),
        (message(sqs_message={"Attributes": None}), False, None),
        (SimpleNamespace(delivery_info=None, headers=None), False, None),
    ],
)
def test_what_the_broker_says_of_earlier_deliveries(delivered, back, count):
    assert (came_back(delivered), brokers_count(delivered)) == (back, count)
