"""A consumer as Celery has it, without a broker: with kombu's prefetch count and messages."""

from __future__ import annotations

from types import SimpleNamespace

from celery.bootsteps import RUN
from kombu.common import QoS
from kombu.transport.pyamqp import Message as AMQPMessage
from kombu.transport.virtual import Message as VirtualMessage


class Channel:
    """Keeps nothing of what is acknowledged."""

    no_ack_consumers = None

    def basic_ack(self, *_args, **_kwargs): ...

    basic_reject = basic_ack


class Consumer:
    """A consumer on a connected broker; ``handled`` are the messages that Celery's handler got."""

    def __init__(self, app, *, slots, prefetched):
        self.app, self.handled = app, []
        self.qos = QoS(lambda **_: None, prefetched)
        self.initial_prefetch_count = prefetched
        self.pool = SimpleNamespace(num_processes=slots, limit=slots)
        self.connection = SimpleNamespace(transport=SimpleNamespace(driver_type="amqp"))
        self.blueprint = SimpleNamespace(state=RUN)
        self.dlq = SimpleNamespace(isolation=SimpleNamespace(is_on=False))

    def create_task_handler(self, promise=None):
        return lambda message: self.handled.append(message)


def virtual_message(tag=1):
    """A message from Redis."""
    payload = {
        "body": "", "headers": {}, "properties": {"delivery_tag": tag, "delivery_info": {}},
        "content-type": "", "content-encoding": "",
    }  # fmt: skip
    return VirtualMessage(payload, channel=Channel())


def amqp_message(tag=1):
    """A message from RabbitMQ."""
    sent = SimpleNamespace(
        body=b"", delivery_tag=tag, properties={}, delivery_info={}, content_type="",
        content_encoding="", headers={},
    )  # fmt: skip
    return AMQPMessage(sent, channel=Channel())
