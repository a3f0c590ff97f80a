"""Message headers that this package writes, and those that it must not send along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Which redrive a message is, 1 for the first; kept by Celery through the retries of that redrive.
REDRIVE_HEADER = "x-dlq-redrive"

#: The letter that a redriven message belongs to, where the message's own id does not say so: it has
#: none, or one that the store could not keep as it is.
LETTER_HEADER = "x-dlq-letter"

#: Set on the letter of a message that could not be decompressed: its body is sent as it came, together
#: with the ``compression`` header that belongs to it.
COMPRESSED_HEADER = "x-dlq-compressed"

#: What a message had in the place of its headers, when that was no table.
RAW_HEADERS_HEADER = "x-dlq-headers"

#: The failed attempts so far, as JSON text, carried from retry to retry.
ATTEMPTS_HEADER = "x-dlq-attempts"

#: Beginnings of headers that brokers and transports put on a delivered message. Sent along again,
#: RabbitMQ takes ``x-death`` for a cycle and drops the message, and stale counts mislead.
DELIVERY_HEADERS = ("x-death", "x-first-death", "x-last-death", "x-delivery-count", "redelivered")

_REDRIVE_LIMIT = 2**31 - 1


def redrive_of(headers: Mapping[str, Any] | None) -> int:
    """Which redrive a message with these headers is; 0 is the original message. Headers come from
    outside: what is no count is none."""
    number = (headers or {}).get(REDRIVE_HEADER)
    is_count = type(number) is int and 0 <= number <= _REDRIVE_LIMIT
    return number if is_count else 0  # type: ignore[return-value]
