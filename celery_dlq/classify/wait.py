"""The wait that a server asks for: ``Retry-After`` and similar headers, wherever libraries keep
them."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import TypeVar, cast

from celery_dlq.classify.evidence import Source, call, mapping_item, may_have, read, text_of
from celery_dlq.classify.guarded import bounded, own_values, shape_of

T = TypeVar("T")

#: Seconds from now, or the time until which to wait.
Wait = float | datetime

#: A longer wait, in seconds, makes no sense (these are about 31 years). A larger number is a Unix time.
_LONGEST = 1e9

_HEADER_LIMIT = 256

#: Where the headers are: most clients, the exception itself, elastic_transport, httplib2 (the response is a
#: dict of headers), websocket-client.
_HEADER_SOURCES: tuple[Source, ...] = (
    ("response", "headers"), ("headers",), ("meta", "headers"), ("resp",), ("resp_headers",),
)  # fmt: skip

#: The attributes that may contain a wait.
_CARRIED = frozenset(
    {*(source[0] for source in _HEADER_SOURCES), "retry_after", "details", "trailing_metadata"}
)

_DETAIL_LIMIT = 16

#: The most bytes of a trailer that are read; servers limit all their headers to 8 kB.
_TRAILER_LIMIT = 16_384

# The values of a header that came twice are joined by a comma; the first one counts.
_SECONDS = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(?:,\s*[0-9.]+\s*)*\Z")
_ATTRIBUTE = re.compile(r"retry_?after(?:_?s|_?secs?|_?seconds|(_?ms))?\Z", re.IGNORECASE)
# The common part of the three formats of RFC 9110, 5.6.7.
_DATE = re.compile(r"\s*[A-Z][a-z]{2,8},? .{5,12}\d\d:\d\d:\d\d ")


def retry_after(exc: BaseException) -> Wait | None:
    """How long to wait, or until when, as the exception or the response that it carries says.

    Read in this order: the headers ``retry-after-ms`` and ``x-ms-retry-after-ms`` (Azure, OpenAI),
    ``Retry-After`` (RFC 9110, 10.2.3: seconds or an HTTP date), the headers of a used-up rate limit,
    the trailers and details of gRPC, an attribute such as ``retry_after``. None if there is no such value, or
    no sensible one.
    """
    asked = [_from_headers, _from_trailers, _from_details] if may_have(exc, _CARRIED) else []
    waits = (source(exc) for source in (*asked, _from_attributes))
    return next((wait for wait in waits if wait is not None), None)


def seconds_until(wait: Wait, now: datetime) -> float:
    """Seconds from ``now``; 0 for a time in the past."""
    if isinstance(wait, datetime):
        return max(0.0, (wait - now).total_seconds())
    return wait


def headers(exc: BaseException) -> dict[str, str]:
    """The headers of the exception's response, or its own, under lower-case names.

    Containers of all kinds are read: mappings, multi-dictionaries, lists of pairs, names and values
    as bytes, lists of values. The first value of a name counts.
    """
    for source in _HEADER_SOURCES:
        found = _copy(read(exc, *source))
        if found:
            return found
    # botocore: ClientError.response is a dict.
    return _copy(mapping_item(read(exc, "response"), "ResponseMetadata", "HTTPHeaders"))


def _from_headers(exc: BaseException) -> Wait | None:
    found = headers(exc)
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        milliseconds = _seconds(found.get(name, ""))
        if milliseconds is not None:
            return milliseconds / 1_000
    wait = _parse(found.get("retry-after", ""))
    return wait if wait is not None else _from_rate_limit(found)


def _from_rate_limit(found: dict[str, str]) -> Wait | None:
    """The end of a rate limit that is used up.

    ``x-ratelimit-reset-after`` is Discord's ("Rate Limits": seconds). ``x-ratelimit-reset`` is GitHub's
    ("Rate limits for the REST API": Unix time), and ``x-rate-limit-reset`` is the same of X and Okta.
    Other services put seconds, milliseconds or durations there, so only a number that must be a Unix time
    counts.
    """
    for prefix in ("x-ratelimit", "x-rate-limit"):
        if found.get(f"{prefix}-remaining") != "0":
            continue
        after = _seconds(found.get(f"{prefix}-reset-after", ""))
        if after is not None:
            return after
        reset = found.get(f"{prefix}-reset", "")
        if re.fullmatch(r"[0-9]{10}(\.[0-9]+)?", reset) and float(reset) >= _LONGEST:
            return datetime.fromtimestamp(float(reset), timezone.utc)
    return None


def _from_trailers(exc: BaseException) -> Wait | None:
    """The wait from gRPC: from the error itself, or from the one that google-api-core keeps as ``response``.

    ``grpc-retry-pushback-ms``: gRFC A6. A negative value means "do not retry", which is not a wait.
    """
    for holder in (exc, read(exc, "response")):
        trailers = _trailers(holder) if holder is not None else {}
        milliseconds = _seconds(text_of(trailers.get("grpc-retry-pushback-ms")) or "")
        if milliseconds is not None:
            return milliseconds / 1_000
        details = trailers.get("grpc-status-details-bin")
        delay = retry_delay(details) if type(details) is bytes else None
        if delay is not None and _sensible(delay) is not None:
            return delay
    return None


def _trailers(holder: object) -> dict[str, object]:
    container = call(holder, "trailing_metadata")
    if container is None:
        return {}
    pairs = _known_or_bounded(container, lambda: list(islice(_pairs(container), _HEADER_LIMIT)))
    # grpc.aio gives a list of values for a name.
    return {name: _first(value) for key, value in pairs or () if (name := text_of(key)) is not None}


def _from_details(exc: BaseException) -> Wait | None:
    """google-api-core and googleapis' clients: ``details`` lists messages; one may be a RetryInfo."""
    details = read(exc, "details")
    if type(details) is not list and type(details) is not tuple:
        return None
    for detail in details[:_DETAIL_LIMIT]:
        delay = read(detail, "retry_delay")
        seconds, nanos = read(delay, "seconds"), read(delay, "nanos")
        if type(seconds) is int and type(nanos) is int:
            return _sensible(float(seconds + nanos / 1e9)) if abs(seconds) <= _LONGEST else None
        if issubclass(type(delay), timedelta):
            return _from_value(delay)
    return None


def _from_attributes(exc: BaseException) -> Wait | None:
    """``retry_after``, also as ``retryAfter`` or with a unit, as in ``retry_after_s``."""
    found = {"retry_after": read(exc, "retry_after"), **own_values(exc, _HEADER_LIMIT)}
    for name, value in found.items():
        match = _ATTRIBUTE.match(name)
        wait = _from_value(value) if match else None
        if match and wait is not None:
            return wait / 1_000 if match[1] and not isinstance(wait, datetime) else wait
    return None


def _copy(container: object) -> dict[str, str]:
    if container is None:
        return {}
    copy: dict[str, str] = {}
    _known_or_bounded(container, lambda: _fill(copy, container))
    return copy


def _known_or_bounded(container: object, work: Callable[[], T]) -> T | None:
    """The result of ``work`` on a container, some of whose methods may be foreign."""
    if not shape_of(type(container)).known:
        return bounded(work, container, "items")
    try:
        return work()
    except BaseException:  # noqa: BLE001 - a foreign container may raise anything
        return None


def _fill(copy: dict[str, str], container: object) -> None:
    for key, value in islice(_pairs(container), _HEADER_LIMIT):
        name, text = text_of(key), _header_text(_first(value))
        if name is not None and text is not None:
            copy.setdefault(name.lower(), text)


def _header_text(value: object) -> str | None:
    # Test doubles and some clients keep numbers. Larger ones cannot be waits, and str() may refuse
    # them.
    if (type(value) is int or type(value) is float) and abs(cast(float, value)) <= _LONGEST:
        return str(value)
    return text_of(value)


def _pairs(container: object) -> Iterator[tuple[object, object]]:
    items = read(container, "items")
    pairs = items() if callable(items) else container
    return iter(cast("Iterable[tuple[object, object]]", pairs))


def _first(value: object) -> object:
    # Not isinstance(): a __class__ property may raise.
    if type(value) is list or type(value) is tuple:
        return value[0] if value else None
    return value


def _parse(text: str) -> Wait | None:
    seconds = _seconds(text)
    return seconds if seconds is not None else _moment(text)


def _seconds(text: str) -> float | None:
    match = _SECONDS.match(text)
    return _sensible(float(match[1])) if match else None


def _moment(text: str) -> datetime | None:
    if not _DATE.match(text):
        return None
    try:
        return _aware(parsedate_to_datetime(text))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _from_value(value: object) -> Wait | None:
    # timedelta is python-telegram-bot's, datetime is werkzeug's.
    kind = type(value)
    try:
        if kind is int or kind is float:
            return _sensible(float(cast(float, value)))
        if issubclass(kind, timedelta):
            return _sensible(timedelta.total_seconds(cast(timedelta, value)))
        if issubclass(kind, datetime):
            return _aware(cast(datetime, value))
    except BaseException:  # noqa: BLE001 - a huge int overflows, a foreign tzinfo may raise anything
        return None
    return _parse(text_of(value) or "")


def _sensible(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) and 0 <= seconds <= _LONGEST else None


def _aware(moment: datetime) -> datetime:
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return zoned.astimezone(timezone.utc)


def retry_delay(status: bytes) -> float | None:
    """Seconds to wait, from a serialised ``google.rpc.Status`` with a RetryInfo; None if it has none.

    Only if the process has loaded Google's classes for these messages (googleapis-common-protos).
    """
    statuses, details = (
        sys.modules.get(f"google.rpc.{name}_pb2") for name in ("status", "error_details")
    )
    if statuses is None or details is None or len(status) > _TRAILER_LIMIT:
        return None
    info = details.RetryInfo()
    try:
        for detail in statuses.Status.FromString(status).details:
            if detail.Unpack(info):
                delay = info.retry_delay
                return float(delay.seconds + delay.nanos / 1e9)
    except Exception:  # noqa: BLE001 - DecodeError, which only protobuf has
        return None
    return None
