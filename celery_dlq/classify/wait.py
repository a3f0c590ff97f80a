"""How long a server asks to wait: ``Retry-After`` and its relatives, wherever libraries keep them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from itertools import islice

from celery_dlq.classify.evidence import Source, read, text_of

#: Seconds from now, or the moment until which to wait.
Wait = float | datetime

#: Waits beyond this many seconds (about 31 years) are garbage.
_LONGEST = 1e9

_HEADER_LIMIT = 256
_HEADER_SOURCES: tuple[Source, ...] = (("response", "headers"), ("headers",))

_SECONDS = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*\Z")


def retry_after(exc: BaseException) -> Wait | None:
    """What the exception, or the response it carries, says about when to try again.

    Read in this order: the headers ``retry-after-ms`` and ``x-ms-retry-after-ms`` (Azure, OpenAI),
    ``Retry-After`` (RFC 9110, 10.2.3: seconds or an HTTP date), the attribute ``retry_after``.
    None when nothing says so, or nothing sensible.
    """
    found = headers(exc)
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        milliseconds = _seconds(found.get(name, ""))
        if milliseconds is not None:
            return milliseconds / 1_000
    wait = _parse(found.get("retry-after", ""))
    return wait if wait is not None else _from_value(read(exc, "retry_after"))


def seconds_until(wait: Wait, now: datetime) -> float:
    """Seconds from ``now``; a moment in the past is 0."""
    if isinstance(wait, datetime):
        return max(0.0, (wait - now).total_seconds())
    return wait


def headers(exc: BaseException) -> dict[str, str]:
    """The headers of the exception's response, or its own, under lower-case names.

    Containers of all kinds are read: mappings, multi-dictionaries, lists of pairs, names and values
    as bytes, lists of values. The first value of a name counts.
    """
    for source in _HEADER_SOURCES:
        container = read(exc, *source)
        if container is not None:
            return _copy(container)
    return {}


def _copy(container: object) -> dict[str, str]:
    copy: dict[str, str] = {}
    try:
        for key, value in islice(_pairs(container), _HEADER_LIMIT):
            name, text = text_of(key), text_of(_first(value))
            if name is not None and text is not None:
                copy.setdefault(name.lower(), text)
    except BaseException:  # noqa: BLE001 - a foreign container may raise anything
        return copy
    return copy


def _pairs(container: object) -> Iterator[tuple[object, object]]:
    items = read(container, "items")
    pairs = items() if callable(items) else container
    return iter(pairs) if isinstance(pairs, Iterable) else iter(())


def _first(value: object) -> object:
    return value[0] if isinstance(value, (list, tuple)) and value else value


def _parse(text: str) -> Wait | None:
    seconds = _seconds(text)
    return seconds if seconds is not None else _moment(text)


def _seconds(text: str) -> float | None:
    match = _SECONDS.match(text)
    return _sensible(float(match[1])) if match else None


def _moment(text: str) -> datetime | None:
    if not text:
        return None
    try:
        return _aware(parsedate_to_datetime(text))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _from_value(value: object) -> Wait | None:
    # timedelta is python-telegram-bot's, datetime is werkzeug's.
    try:
        if type(value) is int or type(value) is float:
            return _sensible(float(value))
        if isinstance(value, timedelta):
            return _sensible(value.total_seconds())
        if isinstance(value, datetime):
            return _aware(value)
    except BaseException:  # noqa: BLE001 - a huge int overflows, a foreign tzinfo may raise anything
        return None
    return _parse(text_of(value) or "")


def _sensible(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) and 0 <= seconds <= _LONGEST else None


def _aware(moment: datetime) -> datetime:
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return zoned.astimezone(timezone.utc)
