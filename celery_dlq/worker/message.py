"""Reads a message: its id and name, how often it was delivered, its contents, and the envelope in which it is
sent again. Nothing is unpickled here."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kombu.serialization import loads

from celery_dlq.base.codec import raw_body
from celery_dlq.base.redact import safe_text
from celery_dlq.model.headers import (
    COMPRESSED_HEADER,
    DELIVERY_HEADERS,
    GROUP_PROPERTY,
    RELEASE_HEADERS,
    as_id,
    attempt_number,
    changed,
    has_header,
    letter_of,
    redrive_of,
    release_of,
)
from celery_dlq.model.letter import NO_TASK, Envelope

#: AMQP's message properties that a sender may set, and what SQS adds to them; the rest belongs to one
#: delivery. The id by which a FIFO queue of SQS drops duplicates is left out: within five minutes, SQS would
#: drop the message that is sent again, and answer as if it had taken it.
_PROPERTIES = (
    "correlation_id", "reply_to", "priority", "delivery_mode", "expiration",
    "message_id", "timestamp", "type", "user_id", "app_id", GROUP_PROPERTY, "message_attributes",
)  # fmt: skip

#: RabbitMQ's default delivery limit of quorum queues, and the major version that has introduced it.
_DELIVERY_LIMIT, _LIMITED_SINCE = 20, 4

_DELAYED_EXCHANGE = "celery_delayed_delivery"

#: The most bytes of a body that is decoded for display; the event loop waits while it is decoded.
DECODE_LIMIT = 8 * 1024 * 1024

#: Other content types may run code when they are read.
_SAFE_CONTENT = "application/json"


def letter_id(message: Any, own_id: object, otherwise: str = "") -> str:
    """The id of the letter of ``message``, whose task id is ``own_id`` (None if it has none).

    :param otherwise: the id if nothing in the message identifies it; by default a new one.

    It is the same for every delivery of a message, as far as the message allows: a crash between writing
    and acknowledgement must not make a second letter.
    """
    named = letter_of(message.headers)
    if named is not None:
        return named
    properties = message.properties or {}
    received = _received_from_sqs(getattr(message, "delivery_info", None) or {})
    return (
        as_id(own_id)
        or as_id(received.get("MessageId"))
        # kombu's virtual transports (Redis, ...) tag a message when it is published, and keep the tag. On
        # SQS, it is the tag of one delivery.
        or as_id(None if received else properties.get("delivery_tag"))
        or as_id(properties.get("message_id"))
        or otherwise
        or str(uuid.uuid4())
    )


def name_of(request: Any) -> tuple[str, bool]:
    """The name that all deliveries of the message of ``request`` (a worker's Request) have, and whether no
    other message has it. Its retries, redrives and releases have other names. If the transport does not name
    messages, two messages with the same id and contents have the same name."""
    message = request.message
    # SQS makes a new tag for each delivery.
    stable = "sqs_message" not in (message.delivery_info or {})
    tag = (message.properties or {}).get("delivery_tag") if stable else None
    parts = (
        request.id, request.type, request.request_dict.get("retries"), redrive_of(message.headers),
        release_of(message.headers), tag,
    )  # fmt: skip
    digest = hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=10)
    body = message.body
    digest.update(body if isinstance(body, bytes) else str(body).encode("utf-8", "surrogatepass"))
    return digest.hexdigest(), isinstance(tag, str)


def came_back(message: Any) -> bool:
    """Whether the broker has delivered ``message`` before."""
    info = message.delivery_info or {}
    return bool(info.get("redelivered")) or (_times_received(info) or 1) > 1


def brokers_count(message: Any) -> int | None:
    """The number of this delivery by the broker's own count; None if the broker does not count.

    It includes deliveries that were never started.
    """
    info = message.delivery_info or {}
    if info.get("redelivered"):
        # Celery copies the header to retries, where it says nothing about the first delivery.
        given_back = _whole((message.headers or {}).get("x-delivery-count"))
        if given_back is not None:
            return given_back + 1
    return _times_received(info)


def is_dropped_next(message: Any) -> bool:
    """Whether the broker may drop ``message`` soon, because it has come back too often.

    RabbitMQ 4 gives quorum queues a delivery limit, which is 20 unless a policy or the queue says another
    number. One delivery is left, for a worker that is killed while it writes the letter.
    """
    connection = getattr(getattr(message, "channel", None), "connection", None)
    server = getattr(connection, "server_properties", None) or {}
    major = _whole(str(server.get("version")).partition(".")[0]) or 0
    return major >= _LIMITED_SINCE and (brokers_count(message) or 0) >= _DELIVERY_LIMIT


def _times_received(info: Mapping[str, Any]) -> int | None:
    """The count of Amazon SQS or of pgmq; None on other brokers."""
    of_pgmq = info.get("pgmq_message")
    if isinstance(of_pgmq, Mapping):
        return _whole(of_pgmq.get("read_ct"))
    attributes = _received_from_sqs(info).get("Attributes") or {}
    return _whole(attributes.get("ApproximateReceiveCount"))


def _received_from_sqs(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """What SQS gave with a message; empty on other brokers."""
    received = info.get("sqs_message")
    return received if isinstance(received, Mapping) else {}


def _beside(info: Mapping[str, Any]) -> dict[str, Any]:
    """The properties that SQS keeps beside a message, as far as they were asked for, under kombu's names."""
    received = _received_from_sqs(info)
    group = (received.get("Attributes") or {}).get(GROUP_PROPERTY)
    return {GROUP_PROPERTY: group, "message_attributes": received.get("MessageAttributes")}


def _whole(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def envelope(message: Any, app: Any) -> Envelope:
    """The raw message, as far as it can be sent again."""
    info = message.delivery_info or {}
    exchange, routing_key = (str(info.get(name) or "") for name in ("exchange", "routing_key"))
    return Envelope(
        body=raw_body(message.body, message.content_encoding),
        content_type=str(message.content_type or ""),
        content_encoding=str(message.content_encoding or ""),
        headers=_headers(message),
        properties=sent_properties({**_beside(info), **(message.properties or {})}),
        exchange=exchange,
        routing_key=routing_key,
        queue=queue_name(exchange, routing_key, app),
    )


def sendable_envelope(message: Any, app: Any, marks: Mapping[str, Any]) -> Envelope:
    """The message in the form in which it is sent again: unchanged, without having been run or redriven.
    ``marks`` are headers that mark it."""
    came = envelope(message, app)
    # kombu has undone the compression, unless the mark says otherwise.
    undone = () if has_header(came.headers, COMPRESSED_HEADER) else ("compression",)
    dropped = (*DELIVERY_HEADERS, *RELEASE_HEADERS, *undone)
    headers = changed(came.headers, lambda name: str(name).startswith(dropped), marks)
    return replace(came, headers=headers)


def _headers(message: Any) -> dict[str, Any]:
    headers = dict(message.headers or {})
    # kombu notes an error when it cannot undo the compression, and leaves the body as it came.
    if "compression" in headers and message.errors:
        headers[COMPRESSED_HEADER] = True
    return headers


def sent_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of a message that its sender set."""
    return {name: properties[name] for name in _PROPERTIES if properties.get(name) is not None}


def queue_name(exchange: str, routing_key: str, app: Any) -> str:
    """The queue that takes ``routing_key`` from ``exchange``; empty if unknown."""
    if exchange == _DELAYED_EXCHANGE:
        # Native delayed delivery writes the wait as 28 binary digits before the routing key.
        routing_key = routing_key.split(".", 28)[-1]
        return _bound_queue(None, routing_key, app) or routing_key
    if not exchange:
        return routing_key
    return _bound_queue(exchange, routing_key, app)


def _bound_queue(exchange: str | None, routing_key: str, app: Any) -> str:
    """The one configured queue that takes ``routing_key`` from ``exchange``; empty if none or several do."""
    names = [
        queue.name
        for queue in app.amqp.queues.values()
        if queue.routing_key == routing_key and exchange in (None, queue.exchange.name)
    ]
    return str(names[0]) if len(names) == 1 else ""


@dataclass(frozen=True)
class Contents:
    """The parts of a message that can be read without running code in it."""

    #: Names the task: the headers; in the protocol of Celery 3, the body.
    fields: Mapping[str, Any]
    args: Any = None
    kwargs: Any = None
    embed: Any = None

    @property
    def task(self) -> str:
        """The task's name, or a placeholder."""
        name = self.fields.get("task")
        return safe_text(name) if isinstance(name, str) and name else NO_TASK

    @property
    def attempt_number(self) -> int:
        """1-based; Celery's ``retries`` + 1."""
        return attempt_number(self.fields)

    @property
    def canvas(self) -> str:
        """The kind of canvas that the message is part of: ``chord``, ``chain``, ``group``, or empty."""
        embed = self.embed if isinstance(self.embed, Mapping) else {}
        for kind in ("chord", "chain"):
            if embed.get(kind):
                return kind
        return "group" if self.fields.get("group") else ""


def read_contents(message: Any) -> Contents:
    """The contents of a kombu message, or of an envelope."""
    headers, payload = message.headers, _payload(message)
    if isinstance(payload, Mapping) and "task" in {**headers, **payload}:
        fields = headers if "task" in headers else payload
        return Contents(fields, payload.get("args"), payload.get("kwargs"), payload)
    if isinstance(payload, (list, tuple)) and len(payload) == 3:
        return Contents(headers, *payload)
    return Contents(headers)


def _payload(message: Any) -> Any:
    """The decoded body; None if decoding might fail, run code, or take long."""
    if message.content_type != _SAFE_CONTENT or len(message.body or b"") > DECODE_LIMIT:
        return None
    encoding = message.content_encoding
    try:
        return loads(message.body, _SAFE_CONTENT, encoding, accept={_SAFE_CONTENT})
    except Exception:  # noqa: BLE001 - decoders raise anything
        return None
