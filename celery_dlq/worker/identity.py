"""Under which id a message's letter is kept, and by what a message is known when it comes again."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from typing import Any

from celery_dlq.headers import LETTER_HEADER, RELEASE_HEADER, redrive_of


def letter_id(message: Any, own_id: object, otherwise: str = "") -> str:
    """The id of the letter of ``message``, whose task id is ``own_id`` (None when it has none).

    :param otherwise: the id when nothing tells the message from others; by default a new one.

    The same for every delivery of a message as far as anything about it is: a crash between the
    record and the acknowledgement must not make a second letter.
    """
    named = _named(message)
    if named is not None:
        return named
    properties = message.properties or {}
    return (
        _usable(own_id)
        # kombu's virtual transports (Redis, SQS, ...) tag a message when it is published, and keep the tag.
        or _usable(properties.get("delivery_tag"))
        or _usable(properties.get("message_id"))
        or otherwise
        or str(uuid.uuid4())
    )


@dataclass(frozen=True)
class MessageName:
    """The same for all deliveries of a message; not for a retry, a redrive, or a release of it."""

    text: str
    #: Whether no other message has it. Where the transport gives messages no names, one that was sent twice
    #: with the same id and the same contents does.
    exact: bool


def name_of(request: Any) -> MessageName:
    """The name of the message of ``request`` (a worker's Request)."""
    message = request.message
    # SQS makes a new tag for each delivery.
    stable = "sqs_message" not in (message.delivery_info or {})
    tag = (message.properties or {}).get("delivery_tag") if stable else None
    parts = (
        request.id, request.type, request.request_dict.get("retries"), redrive_of(message.headers),
        message.headers.get(RELEASE_HEADER), tag,
    )  # fmt: skip
    digest = hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=10)
    body = message.body
    digest.update(body if isinstance(body, bytes) else str(body).encode("utf-8", "surrogatepass"))
    return MessageName(digest.hexdigest(), exact=isinstance(tag, str))


def _named(message: Any) -> str | None:
    headers = message.headers
    return _usable(headers.get(LETTER_HEADER)) if LETTER_HEADER in headers else None


def _usable(candidate: object) -> str | None:
    if isinstance(candidate, str):
        return candidate if candidate.strip() else None
    is_number = isinstance(candidate, int) and not isinstance(candidate, bool)
    return str(candidate) if is_number else None
