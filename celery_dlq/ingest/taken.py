"""A message that was taken and that the broker still has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from celery_dlq.model.letter import Envelope
from celery_dlq.worker.writing.snapshot import envelope

#: A batch is full once its bodies have this many bytes together, even if it has few messages.
BATCH_BYTES = 32_000_000


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A message that the broker still has."""

    #: As delivered. Its exchange and queue are those to which its publisher sent it, or empty if unknown.
    envelope: Envelope
    #: The broker's identifier of the message, if it has one.
    tag: str
    #: The object by which the source removes the message.
    handle: Any = field(repr=False)


def size_of(taken: Taken) -> int:
    """The size of the body in bytes."""
    return len(taken.envelope.body)


def as_delivered(message: Any, app: Any) -> Envelope:
    """The envelope of ``message``; only its body if its other fields cannot be read."""
    try:
        return envelope(message, app)
    except Exception:  # noqa: BLE001 - a stranger may have sent anything
        body = message.body
        return body_alone(body if isinstance(body, bytes) else str(body).encode())


def body_alone(body: bytes) -> Envelope:
    """The envelope of a message whose other fields cannot be read."""
    return Envelope(
        body=body, content_type="", content_encoding="", headers={}, properties={},
        exchange="", routing_key="", queue="",
    )  # fmt: skip
