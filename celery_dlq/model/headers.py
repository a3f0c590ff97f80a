"""Message headers that this package writes, and headers that it must not send again.

Headers are untrusted. Only the functions of this module read ours. They accept any value of a sender,
and raise no error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from functools import lru_cache, partial
from typing import Any, TypeVar

T = TypeVar("T")

#: The prefix of all our headers.
OWN_HEADERS = "x-dlq-"

#: Which redrive a message is, 1 for the first; kept by Celery through the retries of that redrive.
REDRIVE_HEADER = "x-dlq-redrive"

#: Which copy of its redrive a message is: the claim under which it was sent. A redrive that was killed after
#: publishing a message and before marking it as sent is repeated; only one of its copies runs.
COPY_HEADER = "x-dlq-copy"

#: The letter that a redriven message belongs to, if the message's own id does not say so, because it is
#: missing, or because the store could not keep it unchanged.
LETTER_HEADER = "x-dlq-letter"

#: When a redriven message failed first, in ISO 8601; a redrive does not send the attempts before it.
FIRST_FAILED_HEADER = "x-dlq-first-failed"

#: The group of a redriven message's letter, for the tags and attributes of its run.
GROUP_HEADER = "x-dlq-group"

#: Set on the letter of a message that could not be decompressed: its body is sent as it came, together
#: with the ``compression`` header that belongs to it.
COMPRESSED_HEADER = "x-dlq-compressed"

#: Not a header, but a property: the group in which SQS keeps messages in order, under kombu's name for it.
GROUP_PROPERTY = "MessageGroupId"

#: The value that a message had instead of its headers, if that was not a table.
RAW_HEADERS_HEADER = "x-dlq-headers"

#: The failed attempts so far, as JSON text, carried from retry to retry.
ATTEMPTS_HEADER = "x-dlq-attempts"

#: How many of the runs so far did not use up an attempt of the schedule.
FREE_HEADER = "x-dlq-free"

#: Which release of a parked retry a message is: the parking, a slash, and the number of the copy.
RELEASE_HEADER = "x-dlq-release"

#: Names a message among all that were sent with ``dlq_unsent``, in case it is unknown whether the broker has
#: taken it: see :func:`doubtful_parking`.
SENT_HEADER = "x-dlq-sent"

#: The key of the circuit for which a message was parked; empty if the task has one circuit for all.
CIRCUIT_HEADER = "x-dlq-circuit"

#: Headers of a release, which do not apply to the messages that follow it.
RELEASE_HEADERS = (RELEASE_HEADER, CIRCUIT_HEADER, SENT_HEADER)

#: Prefixes of headers that brokers and transports add to a delivered message. They must not be sent
#: again: RabbitMQ would read ``x-death`` as a cycle and drop the message, and old counts mislead.
DELIVERY_HEADERS = (
    "x-death", "x-first-death", "x-last-death", "x-delivery-count", "x-acquired-count", "redelivered",
)  # fmt: skip

#: A running task sees the table in this header in the place of all headers. Sentry and Datadog send it.
INNER_HEADERS = "headers"

#: A trace id, and the headers in which OpenTelemetry (https://www.w3.org/TR/trace-context/) and Sentry
#: (https://develop.sentry.dev/sdk/telemetry/traces/) send it.
_TRACE_ID = "(?!0{32})[0-9a-f]{32}"
_TRACE_HEADERS = {
    "traceparent": re.compile(f"(?!ff)[0-9a-f]{{2}}-({_TRACE_ID})-[0-9a-f]{{16}}-[0-9a-f]{{2}}"),
    "sentry-trace": re.compile(f"({_TRACE_ID})-[0-9a-f]{{16}}(?:-[01])?"),
}

#: The largest whole number that every database can store.
COUNT_LIMIT = 2**31 - 1
#: The most characters of the names of claims and parkings.
_NAME_LIMIT = 64
#: The most characters of the attempts' header that are read. Headers from this package are far shorter.
_ATTEMPTS_LIMIT = 1 << 20


def release_of(headers: Mapping[str, Any] | None) -> tuple[str, int] | None:
    """The parking and the number of the copy, if the message was parked; otherwise None."""
    return _read(headers, RELEASE_HEADER, _as_release)


def release_header(parking: str, copy: int) -> dict[str, str]:
    """The header that :func:`release_of` reads."""
    return {RELEASE_HEADER: f"{parking}/{copy}"}


def sent_of(headers: Mapping[str, Any] | None) -> str | None:
    """The name of a message that was sent with ``dlq_unsent``; otherwise None."""
    return _read(headers, SENT_HEADER, _as_name)


def doubtful_parking(place: str, sent: str) -> str:
    """The parking, at this place, of the message with this :data:`SENT_HEADER`, if it is unknown whether the
    broker has taken it. No other parking begins like this."""
    return f"{place}.u{sent}"


def sending_of(headers: Mapping[str, Any] | None) -> tuple[int, str] | None:
    """The redrive of a message, and the copy of that redrive; None if it was not redriven, or by a
    version that did not name copies."""
    redrive, copy = redrive_of(headers), _read(headers, COPY_HEADER, _as_name)
    return (redrive, copy) if redrive and copy else None


def redrive_headers(headers: Mapping[str, Any] | None) -> dict[str, Any]:
    """The headers that make a message one of a redrive; empty if it was not redriven."""
    known = headers if isinstance(headers, Mapping) else {}
    return {
        name: known[name]
        for name in (
            REDRIVE_HEADER,
            COPY_HEADER,
            LETTER_HEADER,
            FIRST_FAILED_HEADER,
            GROUP_HEADER,
        )
        if known.get(name) is not None
    }


def redrive_of(headers: Mapping[str, Any] | None) -> int:
    """The number of the redrive of a message with these headers; 0 for the original message, and for
    anything but a count."""
    return _read(headers, REDRIVE_HEADER, _as_count) or 0


def first_failure_of(headers: Mapping[str, Any] | None) -> datetime | None:
    """When a redriven message failed first, in UTC; None for the original message."""
    return _read(headers, FIRST_FAILED_HEADER, _as_time)


def free_runs(headers: Mapping[str, Any] | None) -> int:
    """How many runs before this one did not use up an attempt. These are the runs whose wait the other side
    asked for, and the runs before the schedule started over."""
    return _read(headers, FREE_HEADER, _as_count) or 0


def letter_of(headers: Mapping[str, Any] | None) -> str | None:
    """The id of the letter that a redriven message belongs to; None if its own id is that of the
    letter."""
    return _read(headers, LETTER_HEADER, as_id)


def fingerprint_of(headers: Mapping[str, Any] | None) -> str | None:
    """The fingerprint of the group of a redriven message's letter; None if it is unknown."""
    return _read(headers, GROUP_HEADER, _as_name)


def trace_of(headers: Mapping[str, Any] | None) -> str | None:
    """The id of the trace that a message belongs to, 32 hexadecimal digits; None without a trace."""
    found = (
        _read(headers, name, partial(_as_trace, form)) for name, form in _TRACE_HEADERS.items()
    )
    return next(filter(None, found), None)


def changed(
    headers: Mapping[str, Any], is_dropped: Callable[[object], bool], marks: Mapping[str, Any]
) -> dict[str, Any]:
    """``headers`` without those whose name ``is_dropped`` accepts, and with ``marks``. The headers that a
    running task sees are changed in the same way."""
    made = _changed(headers, is_dropped, marks)
    inner = made.get(INNER_HEADERS)
    if isinstance(inner, dict):
        made[INNER_HEADERS] = _changed(inner, is_dropped, marks)
    return made


def _changed(
    headers: Mapping[str, Any], is_dropped: Callable[[object], bool], marks: Mapping[str, Any]
) -> dict[str, Any]:
    # A redrive changes those of each message; few are dropped.
    made = dict(headers)
    for name in filter(is_dropped, headers):
        del made[name]
    made.update(marks)
    return made


def circuit_of(headers: Mapping[str, Any] | None) -> str | None:
    """The key of the circuit for which a message was parked; None if it was not."""
    return _read(headers, CIRCUIT_HEADER, _as_text)


def attempts_of(headers: Mapping[str, Any] | None, read: Callable[[Any], T]) -> tuple[T, ...]:
    """The earlier attempts of a retried message, oldest first.

    :param read: makes an attempt from its table. If it raises, the attempt is left out.
    """
    return _read(headers, ATTEMPTS_HEADER, partial(_as_attempts, read=read)) or ()


def has_header(headers: Mapping[str, Any] | None, name: str) -> bool:
    """Whether a message has this header, with any value."""
    return headers is not None and name in headers


def attempt_number(fields: Mapping[str, Any] | None) -> int:
    """The number of the attempt that a message asks for, 1 for the first: Celery's ``retries`` + 1, up
    to the limit of a database."""
    return min((_read(fields, "retries", _as_whole) or 0) + 1, COUNT_LIMIT)


def as_id(value: object) -> str | None:
    """``value`` as an id; None if it is empty, or neither a text nor a whole number."""
    if isinstance(value, str):
        return value if value.strip() else None
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number else None


def chord_key(group_id: str) -> str:
    """The id under which a result backend keeps the members of a failed chord. It is not a header but,
    like them, it is written by workers and read by a redrive."""
    return f"celery-dlq-chord-{group_id}"


def _read(
    headers: Mapping[str, Any] | None, name: str, read: Callable[[Any], T | None]
) -> T | None:
    """The value of the header; None if it is missing, or not as this package writes it."""
    if headers is None:
        return None
    try:
        # In a running task, a header named "headers" replaces all of them.
        value = headers.get(name)
        return None if value is None else read(value)
    except Exception:  # noqa: BLE001 - nesting, digits and sizes have limits of their own, each with its error
        return None


def _as_release(value: object) -> tuple[str, int] | None:
    parking, _, copy = value.rpartition("/") if isinstance(value, str) else ("", "", "")
    return (parking, int(copy)) if _as_name(parking) and _is_ordinal(copy) else None


def _as_name(value: object) -> str | None:
    """A name that this package may have given; the store need not accept any other."""
    if not isinstance(value, str) or not 0 < len(value) <= _NAME_LIMIT:
        return None
    return value if value.isascii() and value.isprintable() else None


def _as_trace(form: re.Pattern[str], value: object) -> str | None:
    found = form.fullmatch(value) if isinstance(value, str) else None
    return found and found[1]


def _as_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _as_time(value: object) -> datetime | None:
    # A time without a zone cannot be compared with others.
    time = datetime.fromisoformat(value) if isinstance(value, str) else None
    return time.astimezone(timezone.utc) if time and time.tzinfo else None


def _as_count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= COUNT_LIMIT else None


def _as_whole(value: object) -> int | None:
    return max(0, value) if type(value) is int else None


def _is_ordinal(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < len(str(COUNT_LIMIT))


def _as_attempts(value: object, read: Callable[[Any], T]) -> tuple[T, ...]:
    if not isinstance(value, str) or len(value) > _ATTEMPTS_LIMIT:
        return ()
    return _attempts_in(value, read)


@lru_cache(maxsize=1)
def _attempts_in(text: str, read: Callable[[Any], T]) -> tuple[T, ...]:
    # Each failure of a retried message asks two or three times.
    attempts = []
    for item in json.loads(text):
        with suppress(Exception):  # one broken attempt must not affect the others
            attempts.append(read(item))
    return tuple(attempts)
