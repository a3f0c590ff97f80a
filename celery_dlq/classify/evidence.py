"""Guarded reading of foreign exceptions: nothing here raises, imports, or trusts what it is given.

An exception's attributes may be properties that raise or never come back, mocks that answer to every
name, strings that override ``__eq__``, or numbers that are no numbers. So every value is read through
:func:`read`, which bounds the time (``foreign.py``), and accepted only when its type is exactly one of a
few known ones; no truth value is ever taken (``requests.Response`` is false for a 503), and ``str(exc)``
only where a rule is about text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import cast

from celery_dlq.classify.foreign import Memory, bounded, call, may_have, read, shape_of
from celery_dlq.redact import safe_message

#: A path of attribute names, such as ``("response", "status_code")``.
Source = tuple[str, ...]

#: Characters of a message, or of any text value, that a rule may look at.
TEXT_LIMIT = 1_024

#: Where libraries keep an HTTP status, the surest first. ``code`` comes last because it means
#: something else in many libraries; types that are known to do so never get this far.
STATUS_SOURCES: tuple[Source, ...] = (
    ("response", "status_code"),
    ("status_code",),
    ("http_status",),
    ("status",),
    ("response", "status"),
    ("response_code",),
    ("code",),
)

_LARGEST = 10**9

_NUMBER = re.compile(r"([0-9]{1,9})(?: |\Z)")
_SQLSTATE = re.compile(r"[0-9A-Z]{5}\Z")

# The real attributes of a class, past any metaclass that defines its own.
_MODULE = type.__dict__["__module__"].__get__
_QUALNAME = type.__dict__["__qualname__"].__get__
_MRO = type.__dict__["__mro__"].__get__
# The real arguments of an exception, past its class.
_ARGS = BaseException.__dict__["args"].__get__

# str() of an exception with such arguments runs nothing foreign.
_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})

#: What an exception may declare itself, in public: kafka, google-auth, Neo4j, stripe.
FLAGS = ("retryable", "retriable", "is_retryable", "should_retry")


def bases(cls: type) -> tuple[type, ...]:
    """The classes of ``cls``, the most specific first, without ``object``."""
    mro: tuple[type, ...] = _MRO(cls)
    return mro[:-1]


def dotted_name(cls: type) -> str:
    """``package.module.Class``, as the class itself states it, ``?`` for a part it hides."""
    module, name = _MODULE(cls), _QUALNAME(cls)
    return f"{module if type(module) is str else '?'}.{name if type(name) is str else '?'}"


def _shown_name(cls: type) -> str:
    return dotted_name(cls).removeprefix("builtins.")


#: :func:`dotted_name` as people write it: builtins without their module.
shown_name: Memory[str] = Memory(_shown_name)


def text_of(value: object) -> str | None:
    """A bounded plain string from a string, a subclass of one, or bytes; None from all else."""
    if type(value) is str:
        return value[:TEXT_LIMIT]
    if type(value) is bytes:
        return value[:TEXT_LIMIT].decode("latin-1")
    # Not isinstance(): a __class__ property may raise.
    if issubclass(type(value), str):
        return str.__str__(cast(str, value))[:TEXT_LIMIT]
    return None


def number(value: object) -> int | None:
    """A whole number from an int, an integral float, an enum member, or text like ``503 Service …``.

    Booleans are no numbers, and neither is what merely converts to one: ``int(MagicMock())`` is 1.
    """
    if issubclass(type(value), Enum):
        value = read(value, "value")
    if type(value) is float and value.is_integer():
        return _within_bounds(int(value))
    if type(value) is int:
        return _within_bounds(value)
    match = _NUMBER.match(text_of(value) or "")
    return int(match[1]) if match else None


def message(exc: BaseException) -> str:
    """The beginning of ``str(exc)``. Only for rules that are bound to a type."""
    plain = all(type(item) in _PLAIN for item in arguments(exc))
    if plain and "__str__" not in shape_of(type(exc)).foreign:
        return safe_message(exc)[:TEXT_LIMIT]
    return (bounded(lambda: safe_message(exc), exc, "__str__") or "")[:TEXT_LIMIT]


def arguments(exc: BaseException) -> tuple[object, ...]:
    """``exc.args``, the real ones."""
    args: tuple[object, ...] = _ARGS(exc)
    return args


def status(
    exc: BaseException, sources: Iterable[Source] = STATUS_SOURCES
) -> tuple[int, str] | None:
    """The HTTP status of an unsuccessful answer (300 to 599), and where it was found."""
    for source in sources:
        found = number(read(exc, *source))
        if found is not None and 300 <= found <= 599:
            return found, ".".join(source)
    return None


def sqlstate(exc: object) -> tuple[str, str] | None:
    """The five characters of an SQLSTATE, and where they were found."""
    for name in ("sqlstate", "pgcode"):
        found = text_of(read(exc, name))
        if found is not None and _SQLSTATE.match(found):
            return found, name
    return None


def flag(exc: BaseException) -> tuple[bool, str] | None:
    """Whether the exception says of itself that it is worth another attempt, and where it says so.

    Only public names, and only a real bool: private flags mean something else (azure-servicebus has
    ``_retryable`` on authorization errors).
    """
    for name in FLAGS:
        value = read(exc, name)
        source = name
        if name == "is_retryable" and callable(value):
            value, source = call(exc, name), f"{name}()"
        if type(value) is bool:
            return value, source
    return None


def os_errno(exc: BaseException) -> int | None:
    """``errno`` of an OSError; 0 says that there was no error and counts as missing."""
    code = read(exc, "errno")
    return (_within_bounds(code) or None) if type(code) is int else None


def vendor_code(exc: BaseException) -> tuple[int, str] | None:
    """The number a database driver gives: ``errno``, else the first argument; and where it was."""
    args = arguments(exc)
    for code, source in ((read(exc, "errno"), "errno"), (args[0] if args else None, "args[0]")):
        if type(code) is int and _within_bounds(code) is not None:
            return code, source
    return None


def mapping_item(container: object, *keys: str) -> object:
    """The value at the end of a path of keys, through dicts only; None when it is missing."""
    for key in keys:
        if not issubclass(type(container), dict):
            return None
        container = dict.get(cast("dict[str, object]", container), key)
    return container


def _within_bounds(value: int) -> int | None:
    # str() of an int beyond 4300 digits raises, and no code of any kind is that long.
    return value if abs(value) <= _LARGEST else None


__all__ = [
    "FLAGS", "STATUS_SOURCES", "TEXT_LIMIT", "Source", "arguments", "bases", "call", "dotted_name", "flag",
    "mapping_item", "may_have", "message", "number", "os_errno", "read", "shown_name", "sqlstate",
    "status", "text_of", "vendor_code",
]  # fmt: skip
