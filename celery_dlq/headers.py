"""Message headers that this package writes, and those that it must not send along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Beginning of all headers of ours.
OWN_HEADERS = "x-dlq-"

#: Which redrive a message is, 1 for the first; kept by Celery through the retries of that redrive.
REDRIVE_HEADER = "x-dlq-redrive"

#: Which copy of its redrive a message is: the claim that it was sent under. A redrive that was killed
#: between publication and mark is repeated; one of its copies runs.
COPY_HEADER = "x-dlq-copy"

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

#: How many of the runs so far used up no attempt of the schedule.
FREE_HEADER = "x-dlq-free"

#: Which release of a parked retry a message is: the parking, a slash, and the number of the copy.
RELEASE_HEADER = "x-dlq-release"

#: The key of the circuit for which a message was parked; empty where the task has one for all.
CIRCUIT_HEADER = "x-dlq-circuit"

#: Headers of a release, which say nothing about the messages that follow it.
RELEASE_HEADERS = (RELEASE_HEADER, CIRCUIT_HEADER)

#: Beginnings of headers that brokers and transports put on a delivered message. Sent along again,
#: RabbitMQ takes ``x-death`` for a cycle and drops the message, and stale counts mislead.
DELIVERY_HEADERS = ("x-death", "x-first-death", "x-last-death", "x-delivery-count", "redelivered")

_COUNT_LIMIT = 2**31 - 1
#: Characters of the names of claims and parkings.
_NAME_LIMIT = 64


def release_of(headers: Mapping[str, Any] | None) -> tuple[str, int] | None:
    """The parking and the number of the copy, of a message that was parked; None for any other."""
    value = (headers or {}).get(RELEASE_HEADER)
    parking, _, copy = value.rpartition("/") if isinstance(value, str) else ("", "", "")
    return (parking, int(copy)) if _is_name(parking) and _is_ordinal(copy) else None


def sending_of(headers: Mapping[str, Any] | None) -> tuple[int, str] | None:
    """Which redrive a message is, and which copy of that; None for any that was not redriven, or by a
    version that did not name copies."""
    redrive, copy = redrive_of(headers), (headers or {}).get(COPY_HEADER)
    return (redrive, copy) if redrive and isinstance(copy, str) and _is_name(copy) else None


def redrive_of(headers: Mapping[str, Any] | None) -> int:
    """Which redrive a message with these headers is; 0 is the original message. Headers come from
    outside: what is no count is none."""
    return _count(headers, REDRIVE_HEADER)


def free_runs(headers: Mapping[str, Any] | None) -> int:
    """How many runs before this one used up no attempt: waits that the other side asked for, and what
    came before the schedule began anew."""
    return _count(headers, FREE_HEADER)


def chord_key(group_id: str) -> str:
    """The id under which a result backend keeps the members of a chord that failed. No header, but like
    them it is written by workers and read by a redrive."""
    return f"celery-dlq-chord-{group_id}"


def _is_name(text: str) -> bool:
    """Whether it may be a name that we gave. A store need not take any other."""
    return 0 < len(text) <= _NAME_LIMIT and text.isascii() and text.isprintable()


def _is_ordinal(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < len(str(_COUNT_LIMIT))


def _count(headers: Mapping[str, Any] | None, name: str) -> int:
    number = (headers or {}).get(name)
    is_count = type(number) is int and 0 <= number <= _COUNT_LIMIT
    return number if is_count else 0  # type: ignore[return-value]
