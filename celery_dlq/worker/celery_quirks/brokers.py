"""Brokers: messages that Celery and kombu lose on RabbitMQ's quorum queues and on Redis."""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Callable
from typing import Any

from celery.utils.log import get_logger
from celery.utils.quorum_queues import detect_quorum_queues
from kombu.utils.json import loads

from celery_dlq.model.headers import RAW_HEADERS_HEADER

logger: logging.Logger = get_logger(__name__)


def sendable(app: Any, countdown: Any) -> Any:
    """``countdown``, or a wait near it that the broker of ``app`` can carry: on quorum queues, a part of a
    second is rounded. Without this, Celery refuses to send the message, and it is lost.

    On quorum queues a message waits in the broker, for whole seconds. ``Celery.send_task`` cuts a wait to
    whole seconds (celery 5.7.0, app/base.py, line 1138; the same since 5.5), and ``calculate_routing_key``
    raises for 0 (kombu 5.7.0, transport/native_delayed_delivery.py, line 156). ``retry()`` turns that error
    into a Reject, and the message that was to be retried is dropped. No issue upstream names this, as of
    November 2026.

    It can be deleted when Celery sends such a message. ``retry-subsecond`` of the matrix, in
    ``tests/integration/test_matrix_on_rabbitmq.py``, fails without it on quorum queues.
    """
    if not isinstance(countdown, (int, float)) or not 0.0 < countdown < 1.0:
        return countdown
    driver = app.connection_for_write().transport.driver_type
    if not detect_quorum_queues(app, driver)[0]:
        return countdown
    return float(round(countdown))


def is_on_redis(channel: Any) -> bool:
    """Whether ``channel`` takes messages off Redis lists."""
    handlers = getattr(channel, "handlers", None)
    return isinstance(handlers, dict) and "BRPOP" in handlers and hasattr(channel, "_brpop_read")


def catch_unreadable(channel: Any, noted: Callable[[], str | None] = lambda: None) -> None:
    """Let ``channel`` deliver an item of a Redis list that is not a kombu message as a message that names no
    task, which becomes a dead letter. Without this, the item ends the worker, and is lost.

    ``Channel._brpop_read`` decodes an item after Redis has removed it from the list, and raises if it cannot
    (kombu 5.7.0, transport/redis.py, line 1491; the same since 5.5). Nothing catches that error.
    celery/kombu#2421 is the same bug with SQS, open; no issue upstream names Redis. Does nothing on other
    transports: they leave an item in its queue if they cannot read it, or cannot hold such an item.

    It can be deleted when kombu rejects, or hands on, an item that it cannot read.
    ``test_items_of_a_redis_list_that_are_no_messages`` in ``tests/integration/capture/test_foreign.py`` fails
    without it.

    :param noted: the tag under which Redis has noted the item that was taken last, if it has.
    """
    if is_on_redis(channel):
        reader = _Reader(channel, channel.handlers["BRPOP"], noted)
        channel.client.parse_response = reader.parse_response
        # The event loop uses the former; a channel that is being closed reads pending items by the latter.
        channel.handlers["BRPOP"] = channel._brpop_read = reader.read


class _Reader:
    """Reads one item at a time, and remembers it until it is delivered."""

    def __init__(
        self, channel: Any, read: Callable[..., object], noted: Callable[[], str | None]
    ) -> None:
        self._channel, self._read, self._noted = channel, read, noted
        self._parse = channel.client.parse_response
        #: The list and the item that were taken last.
        self._taken: tuple[Any, Any] | None = None

    def parse_response(self, connection: Any, command: Any, **options: Any) -> Any:
        answer = self._parse(connection, command, **options)
        if command == "BRPOP":
            self._taken = answer
        return answer

    def read(self) -> object:
        self._taken = None
        try:
            return self._read()
        except Exception:
            if self._taken is None:
                raise
            key, item = self._taken
            raw = item if isinstance(item, bytes) else str(item).encode("utf-8", "surrogateescape")
            if is_readable(raw):
                raise
            name = key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else str(key)
            queue = name.rsplit(self._channel.sep, 1)[0]
            logger.exception("an item of the Redis list %s is not a message of kombu's", queue)
            # Under the same tag, it takes the place of the note, and goes when it is acknowledged.
            self._channel.connection._deliver(as_message(raw, queue, self._noted()), queue)
            return True


def is_readable(raw: bytes) -> bool:
    """Whether kombu can make a message from ``raw``."""
    payload = _payload(raw)
    return payload is not None and isinstance(payload.get("headers") or {}, dict)


def as_message(raw: bytes, queue: str, tag: str | None = None) -> dict[str, Any]:
    """A kombu message with ``raw`` as its body, and ``tag`` or a new one as its delivery tag. If only the
    headers are wrong, the result is the message that was sent, with the wrong headers in a header."""
    payload = _payload(raw)
    if payload is not None:
        return {**payload, "headers": {RAW_HEADERS_HEADER: payload["headers"]}}
    return {
        "body": base64.b64encode(raw).decode("ascii"),
        "content-type": "application/data",
        "content-encoding": "binary",
        "headers": {},
        "properties": {
            "body_encoding": "base64",
            "delivery_tag": tag or str(uuid.uuid4()),
            "delivery_info": {"exchange": "", "routing_key": queue},
        },
    }


def _payload(raw: bytes) -> dict[str, Any] | None:
    """The message in ``raw``, whatever its headers are; None if it holds none."""
    try:
        # kombu's, because it refuses some of what Python's reads: typed values of an unknown type.
        payload = loads(raw)
        return payload if _is_message(payload) else None
    except Exception:  # noqa: BLE001 - typed values are made by constructors, which may raise anything
        return None


def _is_message(payload: Any) -> bool:
    """Whether kombu gets far enough to hand the message over; the channel handles errors after that."""
    properties = payload.get("properties") if isinstance(payload, dict) else None
    if not isinstance(properties, dict):
        return False
    info = properties.get("delivery_info")
    return (
        isinstance(properties.get("delivery_tag"), (str, int, float))
        and isinstance(info, dict)
        and {"exchange", "routing_key"} <= info.keys()
        and _is_body(payload.get("body"), properties.get("body_encoding"))
    )


def _is_body(body: Any, encoding: Any) -> bool:
    if not body or not encoding:
        return True
    if encoding == "base64":
        # Characters outside the alphabet are skipped; wrong padding is an error.
        base64.b64decode(body)
    return isinstance(encoding, str) and encoding.lower() in ("utf-8", "base64")
