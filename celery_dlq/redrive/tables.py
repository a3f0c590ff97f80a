"""AMQP: tables and properties of messages in the broker's binary form, as py-amqp writes them by some hundred
calls for each message."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from struct import Struct, pack
from typing import Any

from amqp import Message
from amqp.serialization import dumps


def properties_of(properties: Mapping[str, Any]) -> bytes:
    """The properties of a message of py-amqp."""
    flags, fields = 0, []
    for number, (name, kind) in enumerate(Message.PROPERTIES):
        value = properties.get(name)
        if value is not None:
            flags |= 0x8000 >> number
            fields.append(_field(kind, value))
    return pack(">H", flags) + b"".join(fields)


def entries_of(table: Mapping[Any, Any]) -> bytes:
    """What is in a table, without its length."""
    entries: list[bytes] = []
    for name, value in table.items():
        kind = type(value)
        if kind is str:
            entries.append(text_entry(name, value))
        elif kind in _NUMBERS:
            entries.append(_number(name, value))
        elif kind is list and all(type(item) in _COUNTS for item in value):
            entries.append(_counts(name, tuple(value)))
        else:
            entries.append(_other(name, value))
    return b"".join(entries)


def text_entry(name: Any, value: str) -> bytes:
    """What is in a table that has only this text."""
    data = value.encode("utf-8", "surrogatepass")
    return _name(name) + _text(b"S", len(data)) + data


def short(text: str | bytes) -> bytes:
    """A text of at most 255 bytes. A name that is not in UTF-8 was read as bytes."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return _octet(len(data)) + data


def _field(kind: str, value: Any) -> bytes:
    if kind == "F":
        entries = entries_of(value)
        return pack(">I", len(entries)) + entries
    if kind == "o":
        return pack("B", value)
    return short(value) if type(value) is str else bytes(dumps(kind, (value,)))


_octet, _text = Struct("B").pack, Struct(">cI").pack
_name = functools.lru_cache(maxsize=1_024)(short)

#: Of few values: counts, flags, and nothing. In lists without flags, which are equal to numbers.
_NUMBERS = frozenset({int, bool, type(None)})
_COUNTS = frozenset({int, type(None)})


def _other(name: Any, value: Any) -> bytes:
    table = bytes(dumps("F", ({name: value},)))
    return table[4:]


_number = functools.lru_cache(maxsize=1_024, typed=True)(_other)


@functools.lru_cache(maxsize=1_024)  # time limits, as a rule
def _counts(name: Any, counts: tuple[int | None, ...]) -> bytes:
    return _other(name, list(counts))
