"""The message that a redrive sends: the original one, marked as this redrive's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery_dlq.headers import (
    ATTEMPTS_HEADER,
    COMPRESSED_HEADER,
    COPY_HEADER,
    DELIVERY_HEADERS,
    FREE_HEADER,
    LETTER_HEADER,
    REDRIVE_HEADER,
    RELEASE_HEADERS,
)
from celery_dlq.letter import DeadLetter
from celery_dlq.states import State
from celery_dlq.written_table import WrittenHeaders, as_dict

_BODY = ("body", "content_type", "content_encoding")

_DROPPED = (
    ATTEMPTS_HEADER, COMPRESSED_HEADER, COPY_HEADER, FREE_HEADER, LETTER_HEADER, *RELEASE_HEADERS,
)  # fmt: skip

#: A first attempt that does not expire: the original deadline is long over.
_RENEWED: Mapping[str, Any] = {"retries": 0, "expires": None}


def arguments_of(letter: DeadLetter) -> dict[str, Any]:
    """The message of ``letter`` as arguments of kombu's ``publish()``: same id, body bytes, headers, priority
    and place in its canvas; for its queue, or where the queue is not known, its exchange."""
    envelope = letter.envelope
    arguments = as_dict(envelope.properties)
    arguments.pop("expiration", None)
    arguments.update(
        body=envelope.body,
        exchange="" if envelope.queue else envelope.exchange,
        routing_key=envelope.queue or envelope.routing_key,
        content_type=envelope.content_type,
        content_encoding=envelope.content_encoding,
        headers=headers_to_send(letter),
    )
    return arguments


def prepared(producer: Any, letter: DeadLetter) -> tuple[Any, str, str]:
    """What kombu's ``producer`` would give to its channel for ``letter``: the channel's message, the
    exchange, and the routing key."""
    arguments = arguments_of(letter)
    exchange, routing_key = arguments.pop("exchange"), arguments.pop("routing_key")
    _, mode = producer._delivery_details(exchange, arguments.pop("delivery_mode", None))
    headers, priority = arguments.pop("headers"), arguments.pop("priority", 0)
    body, content_type, encoding = map(arguments.pop, _BODY)
    if not (content_type and encoding):
        # kombu makes up for it.
        body, content_type, encoding = producer._prepare(
            body, None, content_type, encoding, None, headers
        )
    arguments["delivery_mode"] = mode
    message = producer.channel.prepare_message(
        body, priority, content_type, encoding, headers, arguments
    )
    return message, exchange, routing_key


def headers_to_send(letter: DeadLetter) -> dict[str, Any]:
    """The original headers, as of a first attempt, marked as this letter's next redrive, and as the copy
    of it that its claim sends; of a parked retry, those that it has."""
    original = letter.envelope.headers
    if letter.state is State.PARKED:
        return {name: value for name, value in original.items() if name != COMPRESSED_HEADER}
    kept = _kept(original)
    if "task" in kept:
        kept |= {**_RENEWED, "eta": letter.due_at and letter.due_at.isoformat()}
    if COMPRESSED_HEADER not in original:
        # kombu has undone the compression when it hands a message over.
        kept.pop("compression", None)
    if kept.get("id") != letter.task_id:
        # The outcome could not be told to this letter by the message's own id.
        kept[LETTER_HEADER] = letter.task_id
    if letter.claim_token:
        kept[COPY_HEADER] = letter.claim_token
    return {**kept, REDRIVE_HEADER: letter.redrive_count + 1}


def _kept(headers: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(headers, WrittenHeaders) and headers.opening is not None:
        return as_dict(headers)
    return {name: value for name, value in headers.items() if not _is_dropped(name)}


def _is_dropped(name: object) -> bool:
    return name in _DROPPED or (isinstance(name, str) and name.startswith(DELIVERY_HEADERS))
