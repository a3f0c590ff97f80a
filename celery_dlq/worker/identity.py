"""The id of a message's letter, and the name by which a message is recognized when it comes again."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from typing import Any

from celery_dlq.model.headers import as_id, letter_of, redrive_of, release_of


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
    return (
        as_id(own_id)
        # kombu's virtual transports (Redis, SQS, ...) tag a message when it is published, and keep the tag.
        or as_id(properties.get("delivery_tag"))
        or as_id(properties.get("message_id"))
        or otherwise
        or str(uuid.uuid4())
    )


@dataclass(frozen=True)
class MessageName:
    """A name that all deliveries of a message have. Its retries, redrives and releases have other names."""

    text: str
    #: Whether no other message has it. If the transport does not name messages, two messages with the same id
    #: and contents have the same name.
    exact: bool


def name_of(request: Any) -> MessageName:
    """The name of the message of ``request`` (a worker's Request)."""
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
    return MessageName(digest.hexdigest(), exact=isinstance(tag, str))
