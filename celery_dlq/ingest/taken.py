"""A message in hand that the broker still has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from celery_dlq.letter import Envelope
from celery_dlq.worker.snapshot import envelope

#: Bytes of bodies after which a batch is large enough, however few messages it has.
BATCH_BYTES = 32_000_000


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A message that the broker still has."""

    #: As delivered; its place is where its publisher sent it, empty where nothing tells.
    envelope: Envelope
    #: What tells the message from others for as long as it exists, if the broker has such a thing.
    tag: str
    #: What the source knows it by.
    handle: Any = field(repr=False)


def size_of(taken: Taken) -> int:
    """Bytes of the body, which is what a message weighs."""
    return len(taken.envelope.body)


def as_delivered(message: Any, app: Any) -> Envelope:
    """The message; of one that has impossible fields, the body alone."""
    try:
        return envelope(message, app)
    except Exception:  # noqa: BLE001 - whatever a stranger sent
        body = message.body
        return body_alone(body if isinstance(body, bytes) else str(body).encode())


def body_alone(body: bytes) -> Envelope:
    """A message of which nothing else can be read."""
    return Envelope(
        body=body, content_type="", content_encoding="", headers={}, properties={},
        exchange="", routing_key="", queue="",
    )  # fmt: skip
