"""Makes the message that a redrive sends: the original message, marked with the number of the redrive."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from celery_dlq.model.headers import (
    ATTEMPTS_HEADER,
    COMPRESSED_HEADER,
    COPY_HEADER,
    DELIVERY_HEADERS,
    FIRST_FAILED_HEADER,
    FREE_HEADER,
    GROUP_HEADER,
    LETTER_HEADER,
    REDRIVE_HEADER,
    RELEASE_HEADERS,
    changed,
    has_header,
)
from celery_dlq.model.letter import DeadLetter, Envelope
from celery_dlq.model.states import State

_DROPPED = frozenset({
    ATTEMPTS_HEADER, COMPRESSED_HEADER, COPY_HEADER, FREE_HEADER, GROUP_HEADER, LETTER_HEADER,
    *RELEASE_HEADERS,
})  # fmt: skip

#: A first attempt that does not expire: the original deadline is long over.
_RENEWED: Mapping[str, Any] = {"retries": 0, "expires": None}


def arguments_of(letter: DeadLetter) -> dict[str, Any]:
    """The message of ``letter`` as arguments of kombu's ``publish()``. Its id, body bytes, headers, priority
    and place in its canvas stay. It goes to its queue, or to its exchange if the queue is unknown."""
    envelope = letter.envelope
    exchange, routing_key = _place_of(envelope)
    return {
        **_properties_of(envelope),
        "body": envelope.body,
        "exchange": exchange,
        "routing_key": routing_key,
        "content_type": envelope.content_type,
        "content_encoding": envelope.content_encoding,
        "headers": headers_to_send(letter),
    }


def prepared(producer: Any, letter: DeadLetter) -> tuple[Any, str, str]:
    """The message of :func:`arguments_of` as kombu's ``producer`` prepares it for its channel, with the
    exchange and the routing key."""
    envelope, headers = letter.envelope, headers_to_send(letter)
    exchange, routing_key = _place_of(envelope)
    properties = _properties_of(envelope)
    priority = properties.pop("priority", 0)
    _, properties["delivery_mode"] = producer._delivery_details(
        exchange, properties.pop("delivery_mode", None)
    )
    content = envelope.body, envelope.content_type, envelope.content_encoding
    if not (envelope.content_type and envelope.content_encoding):
        # kombu fills them in.
        body, content_type, encoding = content
        content = producer._prepare(body, None, content_type, encoding, None, headers)
    body, content_type, encoding = content
    message = producer.channel.prepare_message(
        body, priority, content_type, encoding, headers, properties
    )
    return message, exchange, routing_key


def _place_of(envelope: Envelope) -> tuple[str, str]:
    return ("", envelope.queue) if envelope.queue else (envelope.exchange, envelope.routing_key)


def _properties_of(envelope: Envelope) -> dict[str, Any]:
    properties = dict(envelope.properties)
    properties.pop("expiration", None)
    return properties


def headers_to_send(letter: DeadLetter) -> dict[str, Any]:
    """The original headers, set back to a first attempt and marked with the number of the redrive, the
    token of the claim and the time of the first failure. A parked retry keeps its headers."""
    original = letter.envelope.headers
    if letter.state is State.PARKED:
        return {name: value for name, value in original.items() if name != COMPRESSED_HEADER}
    headers = changed(original, _is_dropped, _marks_of(letter))
    if "task" in headers:
        headers |= {**_RENEWED, "eta": letter.due_at and letter.due_at.isoformat()}
    if "compression" in headers and not has_header(original, COMPRESSED_HEADER):
        # kombu had decompressed the body when it handed the message over.
        del headers["compression"]
    return headers


def _marks_of(letter: DeadLetter) -> dict[str, Any]:
    marks: dict[str, Any] = {
        REDRIVE_HEADER: letter.redrive_count + 1,
        FIRST_FAILED_HEADER: letter.first_failed_at.isoformat(),
    }
    if letter.envelope.headers.get("id") != letter.task_id:
        # The outcome could not be matched to this letter by the message's own id.
        marks[LETTER_HEADER] = letter.task_id
    if letter.claim_token:
        marks[COPY_HEADER] = letter.claim_token
    if letter.fingerprint:
        marks[GROUP_HEADER] = letter.fingerprint
    return marks


@functools.lru_cache(maxsize=1_024)
def _is_dropped(name: object) -> bool:
    return name in _DROPPED or (isinstance(name, str) and name.startswith(DELIVERY_HEADERS))


#: Errors of serializers, which come before anything is sent.
UNENCODABLE = (TypeError, ValueError)


@dataclass
class Sent:
    """The fates of the messages of a published batch, by task id."""

    confirmed: list[str] = field(default_factory=list)
    #: Refused by the broker, with its reason.
    refused: dict[str, str] = field(default_factory=dict)
    #: Refused messages that a failing broker may have kept nevertheless.
    nacked: set[str] = field(default_factory=set)
    #: Never handed to the broker, because the connection was lost first.
    unsent: list[str] = field(default_factory=list)
    #: Handed over, but the broker did not answer.
    uncertain: list[str] = field(default_factory=list)
    error: str | None = None

    def refuse(self, task_id: str, error: Exception) -> None:
        """Note that the message of ``task_id`` cannot be encoded."""
        self.refused[task_id] = f"it cannot be encoded: {reason(error)}"


class AtOnce:
    """A publisher for brokers whose write is the confirmation."""

    confirms_later = False

    def send(self, letters: Sequence[DeadLetter]) -> Sent:
        """Publish the original messages; never raises."""
        raise NotImplementedError

    def begin(self, letters: Sequence[DeadLetter]) -> Callable[[], Sent]:
        """Publish them; the returned callable has the result."""
        sent = self.send(letters)
        return lambda: sent


def reason(error: Exception) -> str:
    """``error`` in one line."""
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]
