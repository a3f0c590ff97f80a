"""Guarded reading of foreign exceptions: nothing here raises, imports, or trusts its input.

An exception's attributes may be properties that raise or never return, mocks that have every attribute,
strings that override ``__eq__``, or numbers of a strange type. So every value is read through :func:`read`,
which limits the time (``guarded.py``), and is accepted only if its type is exactly one of a few known types.
Truth values are never used (``requests.Response`` is false for a 503), and ``str(exc)`` only if a rule is
about text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from types import WrapperDescriptorType
from typing import TypeGuard, TypeVar, cast

from celery_dlq.base.redact import safe_message
from celery_dlq.classify.guarded import Memory, bounded, call, may_have, read, shape_of

T = TypeVar("T")

#: A path of attribute names, such as ``("response", "status_code")``.
Source = tuple[str, ...]

#: The most characters of a message, or of any text value, that a rule may read.
TEXT_LIMIT = 1_024

#: Where libraries keep an HTTP status, the most reliable first. ``code`` comes last because it means
#: something else in many libraries; rules that come earlier decide for the known ones among them.
STATUS_SOURCES: tuple[Source, ...] = (
    ("response", "status_code"), ("status_code",), ("http_status",), ("status",), ("response", "status"),
    ("response_code",), ("code",),
)  # fmt: skip

_LARGEST = 10**9

_NUMBER = re.compile(r"([0-9]{1,9})(?: |\Z)")
_SQLSTATE = re.compile(r"[0-9A-Z]{5}\Z")

# The real attributes of a class, past any metaclass that defines its own.
_MODULE = type.__dict__["__module__"].__get__
_QUALNAME = type.__dict__["__qualname__"].__get__
_MRO = type.__dict__["__mro__"].__get__
_NAMES = type.__dict__["__dict__"].__get__
# The real arguments of an exception, past its class.
_ARGS = BaseException.__dict__["args"].__get__

# str() of an exception with such arguments runs no foreign code.
_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})

#: Public flags by which an exception says that it is worth another attempt: kafka, google-auth, Neo4j,
#: stripe.
FLAGS = ("retryable", "retriable", "is_retryable", "should_retry")


def bases(cls: type) -> tuple[type, ...]:
    """The classes of ``cls``, the most specific first, without ``object``."""
    mro: tuple[type, ...] = _MRO(cls)
    return mro[:-1]


def dotted_name(cls: type) -> str:
    """``package.module.Class``, according to the class itself; ``?`` for a part that it hides."""
    module, name = _MODULE(cls), _QUALNAME(cls)
    return f"{module if type(module) is str else '?'}.{name if type(name) is str else '?'}"


#: :func:`dotted_name` as people write it: builtins without their module.
shown_name: Memory[str] = Memory(lambda cls: dotted_name(cls).removeprefix("builtins."))


def is_a(value: object, kind: type[T] | tuple[type[T], ...]) -> TypeGuard[T]:
    """Whether ``value`` is an instance of ``kind``. Safe for foreign objects, whose ``__class__`` may
    lie to ``isinstance()`` or raise in it."""
    return issubclass(type(value), kind)


def tells_its_class(value: object) -> bool:
    """Whether ``isinstance()`` is right about ``value``. None of its attributes is read."""
    own = [_NAMES(base) for base in _MRO(type(value)) if base is not object]
    looks_up = (names.get("__getattribute__") for names in own)
    return not any("__class__" in names for names in own) and all(
        look is None or type(look) is WrapperDescriptorType for look in looks_up
    )


def text_of(value: object) -> str | None:
    """A bounded plain string from a string, a subclass of it, or bytes; None from any other type."""
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

    Booleans are not numbers, and neither are objects that merely convert to one: ``int(MagicMock())``
    is 1.
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
    """The HTTP status of an unsuccessful response (300 to 599), and where it was found."""
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
    """Whether the exception declares itself worth another attempt, and in which attribute.

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
    """``errno`` of an OSError; 0 means no error and counts as missing."""
    code = read(exc, "errno")
    return (_within_bounds(code) or None) if type(code) is int else None


def vendor_code(exc: BaseException) -> tuple[int, str] | None:
    """The number that a database driver gives, ``errno`` or the first argument, and where it was found."""
    args = arguments(exc)
    for code, source in ((read(exc, "errno"), "errno"), (args[0] if args else None, "args[0]")):
        if type(code) is int and _within_bounds(code) is not None:
            return code, source
    return None


def mapping_item(container: object, *keys: str) -> object:
    """The value at the end of a path of keys, through dicts only; None if it is missing."""
    for key in keys:
        if not issubclass(type(container), dict):
            return None
        container = dict.get(cast("dict[str, object]", container), key)
    return container


def _within_bounds(value: int) -> int | None:
    # str() of an int with more than 4300 digits raises, and no code is that long.
    return value if abs(value) <= _LARGEST else None


__all__ = [
    "FLAGS", "STATUS_SOURCES", "TEXT_LIMIT", "Source", "arguments", "bases", "call", "dotted_name", "flag",
    "mapping_item", "may_have", "message", "number", "os_errno", "read", "shown_name", "sqlstate",
    "status", "text_of", "vendor_code",
]  # fmt: skip
