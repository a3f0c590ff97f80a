"""Under which id a message's letter is kept."""

from __future__ import annotations

import uuid
from typing import Any

from celery_dlq.headers import LETTER_HEADER


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
    # kombu's virtual transports (Redis, SQS, ...) tag a message when it is published, and keep the tag.
    stable = (own_id, properties.get("delivery_tag"), properties.get("message_id"))
    usable = (_usable(candidate) for candidate in stable)
    return next(filter(None, usable), None) or otherwise or str(uuid.uuid4())


def _named(message: Any) -> str | None:
    headers = message.headers
    return _usable(headers.get(LETTER_HEADER)) if LETTER_HEADER in headers else None


def _usable(candidate: object) -> str | None:
    if isinstance(candidate, str):
        return candidate if candidate.strip() else None
    is_number = isinstance(candidate, int) and not isinstance(candidate, bool)
    return str(candidate) if is_number else None
