"""The allowed values of a setting, and the words for them in an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

#: The schemes of places that keep files for ever, each with the package that fsspec needs for it.
PACKAGES = {
    "file": "",
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
}


def is_archive_url(value: str) -> bool:
    """Whether ``value`` names a place for an archive: a known scheme with a bucket, or a whole path."""
    scheme, rest = _split(value)
    if scheme == "file":
        return rest.startswith("/") and bool(rest.strip("/"))
    # A chain of fsspec, such as simplecache::s3://…, would read back its own copy.
    return scheme in PACKAGES and "::" not in rest and bool(rest.strip("/"))


def archive_package(url: str) -> str:
    """The package that the scheme of ``url`` needs; empty if it needs none."""
    return PACKAGES.get(_split(url)[0], "")


def _split(url: str) -> tuple[str, str]:
    scheme, separator, rest = url.partition("://")
    return (scheme, rest) if separator else ("", url)


@dataclass(frozen=True)
class Allowed:
    """The condition on a value, and the words for it in an error."""

    words: str
    accepts: Callable[[Any], bool]


def number(low: float, high: float, unit: str = "") -> Allowed:
    """A number, of ``unit`` if given, the bounds included."""
    of_unit = f" of {unit}" if unit else ""
    return Allowed(
        f"a number{of_unit} from {low:.15g} to {high:.15g}",
        lambda value: is_number(value) and low <= value <= high,
    )


def whole(low: int, high: int) -> Allowed:
    """A whole number, the bounds included."""
    return Allowed(
        f"a whole number from {low} to {high}",
        lambda value: type(value) is int and low <= value <= high,
    )


def is_number(value: object) -> bool:
    """Whether ``value`` is a number. ``True`` and ``False`` are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


SHARE = Allowed(
    "a number from 0 to 1, or None",
    lambda value: value is None or (is_number(value) and 0.0 <= value <= 1.0),
)
TEXT = Allowed("a non-empty string", lambda value: isinstance(value, str) and bool(value.strip()))
MAYBE_TEXT = Allowed("a string", lambda value: isinstance(value, str))
ON_STALL = Allowed("'log' or 'exit'", lambda value: value in ("log", "exit"))
ARCHIVE_URL = Allowed(
    f"a URL such as s3://bucket/folder or file:///folder ({', '.join(PACKAGES)}), or None",
    lambda value: value is None or (isinstance(value, str) and is_archive_url(value)),
)
BOOLEAN = Allowed("True or False", lambda value: isinstance(value, bool))
NAMES = Allowed(
    "a list of strings",
    lambda value: _is_list(value) and all(isinstance(item, str) and item for item in value),
)
EXCEPTIONS = Allowed(
    "a list of exception classes or their dotted names",
    lambda value: _is_list(value) and all(_names_exception(item) for item in value),
)
HOOKS = Allowed(
    "a list of callables or their dotted names",
    lambda value: _is_list(value) and all(map(_names_callable, value)),
)
MAYBE_CALLABLE = Allowed(
    "a callable or its dotted name, or None",
    lambda value: value is None or _names_callable(value),
)
RULES = Allowed(
    "a list of celery_dlq.Rule objects",
    lambda value: _is_list(value) and all(hasattr(item, "verdict") for item in value),
)
AUTO_REDRIVES = Allowed(
    "a list of celery_dlq.AutoRedrive objects with different names",
    lambda value: _is_list(value) and _have_own_names(value, "AutoRedrive"),
)

ROUTES = Allowed(
    "a list of celery_dlq.Route objects with different names",
    lambda value: _is_list(value) and _have_own_names(value, "Route"),
)


RETENTION = Allowed(
    "a celery_dlq.Retention object, or None",
    lambda value: value is None or _is_a(value, "Retention"),
)


def _is_a(value: object, name: str) -> bool:
    """Whether ``value`` is of the class ``name`` of this package. Rooms above this one define it."""
    return any(
        kind.__name__ == name and kind.__module__.startswith("celery_dlq.")
        for kind in type(value).__mro__
    )


def _have_own_names(items: Sequence[Any], kind: str) -> bool:
    """Whether all ``items`` are of the class ``kind``, and have names of their own."""
    names = [item.name for item in items if _is_a(item, kind)]
    return len(items) == len(names) == len(set(names))


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _names_exception(item: object) -> bool:
    if isinstance(item, type):
        return issubclass(item, BaseException)
    return isinstance(item, str) and bool(item)


def _names_callable(item: object) -> bool:
    return callable(item) or (isinstance(item, str) and bool(item))
