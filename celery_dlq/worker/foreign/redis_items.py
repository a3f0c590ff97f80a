"""Items of a Redis list that are no message of kombu's: it raises on them after it has taken them off
the list, which ends the worker and loses the item."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable
from typing import Any

from celery.utils.log import get_logger

from celery_dlq.headers import RAW_HEADERS_HEADER

logger = get_logger(__name__)


def catch_unreadable(channel: Any) -> None:
    """Let ``channel`` deliver what is no message of kombu's as one that names no task.

    Does nothing on transports other than Redis: they keep what they cannot read, or cannot hold it.
    """
    handlers = getattr(channel, "handlers", None)
    if isinstance(handlers, dict) and "BRPOP" in handlers and hasattr(channel, "_brpop_read"):
        reader = _Reader(channel, handlers["BRPOP"])
        channel.client.parse_response = reader.parse_response
        # The event loop has the one, and a channel that is closed reads what is under way by the other.
        handlers["BRPOP"] = channel._brpop_read = reader.read


class _Reader:
    """Reads one item at a time, and remembers it until it was delivered."""

    def __init__(self, channel: Any, read: Callable[..., object]) -> None:
        self._channel, self._read = channel, read
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
            queue = _text(key).rsplit(self._channel.sep, 1)[0]
            logger.exception("an item of the Redis list %s is no message of kombu's", queue)
            self._channel.connection._deliver(as_message(raw, queue), queue)
            return True


def is_readable(raw: bytes) -> bool:
    """Whether kombu can make a message of ``raw``."""
    payload = _payload(raw)
    return payload is not None and isinstance(payload.get("headers") or {}, dict)


def as_message(raw: bytes, queue: str) -> dict[str, Any]:
    """A message of kombu's that holds ``raw`` as its body. Where only the headers are wrong, it is the
    message that was sent, with them in a header."""
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
            "delivery_tag": str(uuid.uuid4()),
            "delivery_info": {"exchange": "", "routing_key": queue},
        },
    }


def _payload(raw: bytes) -> dict[str, Any] | None:
    """The message in ``raw``, whatever its headers are; None when there is none."""
    try:
        payload = json.loads(raw)
        return payload if _is_message(payload) else None
    except (ValueError, TypeError, RecursionError):
        return None


def _is_message(payload: Any) -> bool:
    """Whether kombu gets as far as handing the message over, of which the channel then takes care."""
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
        # What is not of the alphabet is skipped, wrong padding is an error.
        base64.b64decode(body)
    return isinstance(encoding, str) and encoding.lower() in ("utf-8", "base64")


def _text(key: Any) -> str:
    return key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else str(key)
