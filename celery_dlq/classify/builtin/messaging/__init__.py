"""Brokers and streams, kombu and Celery."""

from celery_dlq.classify.builtin.messaging import (
    amqp,
    celery,
    kafka,
    nats,
    pulsar,
    stomp,
)

ROWS = (
    *celery.ROWS,
    *amqp.ROWS,
    *kafka.ROWS,
    *nats.ROWS,
    *pulsar.ROWS,
    *stomp.ROWS,
)
