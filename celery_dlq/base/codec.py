"""Values as JSON: for databases and readers, and without loss for messages that a redrive sends back.

Values that JSON can express are plain JSON. Other values (bytes, dates, decimals, non-finite numbers, tables
whose keys are not strings) become an object with one key that begins with ``$``. A dataclass becomes an
object with its fields; their types say how they are read back.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache, partial
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import orjson

from celery_dlq.base.redact import safe_repr, safe_text

T = TypeVar("T")

#: Levels of a value that are kept without loss. A deeper value could be written, but not read by a
#: process with a fuller stack than that of the writer.
LEVELS = 100
#: Levels that are kept of a value that nests more deeply.
_DEPTH = 32
#: Bits of a whole number that are kept in that case. Python converts 14,000 bits to text, other readers
#: fewer.
_BITS = 1024


def dump_json(value: Any) -> str:
    """JSON that every database and reader accepts: ASCII, without NaN, other objects as text."""
    try:
        return _READABLE.encode(value)
    except (TypeError, ValueError, RecursionError):
        return _READABLE.encode(_stringly(value, _DEPTH))


def quick_json(table: dict[str, Any]) -> bytes | None:
    """``table`` as JSON by orjson, which is ten times as fast as Python. None if orjson refuses a value
    or would write another one, or if :func:`decode_table` might read another one."""
    try:
        return orjson.dumps(table) if _are_quick((table,)) else None
    # Numbers beyond 64 bits, halves of surrogates, names that are not text; and a table that nests deeply.
    except (TypeError, RecursionError):
        return None


def read_json(text: bytes) -> Any:
    """``text`` read as JSON. Numbers may be rounded: orjson reads whole numbers beyond 64 bits as fractions.

    :raises ValueError: it is not JSON.
    """
    try:
        return orjson.loads(text)
    except ValueError:  # Python reads more: NaN, and halves of surrogates
        return json.loads(text)


def _are_quick(values: Iterable[Any]) -> bool:
    for value in values:
        kind = type(value)
        if kind in _PLAIN:
            continue
        if kind is dict:
            # Most tables are empty or have several names, and need no call.
            if len(value) == 1 and _looks_tagged(value):
                return False
            if value and not _are_quick(value.values()):
                return False
        elif kind is list:
            if not _are_quick(value):
                return False
        elif kind is not float or not math.isfinite(value):  # orjson writes NaN as null
            return False
    return True


def encode_table(table: Mapping[str, Any]) -> str:
    """``table`` as ASCII JSON that :func:`decode_table` reads back. Objects of other types, which no
    broker delivers, and nesting beyond :data:`LEVELS` become text."""
    try:
        return _LOSSLESS.encode(_tagged(table))
    except (ValueError, RecursionError):
        return _READABLE.encode(_stringly(table, _DEPTH))


def decode_table(text: str) -> dict[str, Any]:
    """The inverse of :func:`encode_table`."""
    # Redrives read thousands. json.loads() would look for blanks around it, too.
    table, _end = _DECODER.raw_decode(text)
    if "$" in text:  # otherwise nothing in it is tagged
        table = read_plain_form(table)
    return table if isinstance(table, dict) else {}


def plain_form(value: Any) -> Any:
    """``value`` converted to types that JSON has, which :func:`read_plain_form` converts back. Objects of
    other types are left as they are, and nesting beyond :data:`LEVELS` becomes text."""
    try:
        return _tagged(value)
    except RecursionError:
        return _stringly(value, _DEPTH)


def read_plain_form(value: Any) -> Any:
    """The inverse of :func:`plain_form`."""
    if isinstance(value, list):
        return [read_plain_form(item) for item in value]
    if not isinstance(value, dict):
        return value
    if not _looks_tagged(value):
        return {key: read_plain_form(item) for key, item in value.items()}
    ((tag, content),) = value.items()
    if tag == "$table":
        return {read_plain_form(key): read_plain_form(item) for key, item in content}
    return _READERS[tag](content)


def record_of(value: Any, *others: str) -> dict[str, Any]:
    """The fields of a dataclass for JSON, without ``others``: times in ISO 8601, spans in seconds, enums by
    their values. A value with ``to_dict()`` becomes the result of that."""
    names = (item.name for item in fields(value) if item.name not in others)
    return {name: _recorded(getattr(value, name)) for name in names}


def read_record(kind: type[T], data: Mapping[str, Any]) -> T:
    """The inverse of :func:`record_of`. Fields that ``data`` does not have get their defaults.

    :raises Exception: ``data`` does not fit.
    """
    readers = _readers(cast("Any", kind))
    known = {name: readers[name](item) if name in readers else item for name, item in data.items()}
    return kind(**known)


def _recorded(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, frozenset):
        return sorted(map(_recorded, value))
    if isinstance(value, tuple):
        return [*map(_recorded, value)]
    if is_dataclass(value):
        return value.to_dict() if hasattr(value, "to_dict") else record_of(value)
    return value


@cache
def _readers(kind: type[Any]) -> Mapping[str, Callable[[Any], Any]]:
    """The fields of a dataclass whose values have another form in JSON, each with the function that reads
    it."""
    found = {name: _reader(hint) for name, hint in get_type_hints(kind).items()}
    return {name: read for name, read in found.items() if read is not None}


def _reader(hint: Any) -> Callable[[Any], Any] | None:
    """Reads a value of a type; None if it has the same form in JSON."""
    origin, inner = get_origin(hint), (*get_args(hint), None)[0]
    if origin is UnionType:  # of a type and None
        read = _reader(inner)
        return read and (lambda value: None if value is None else read(value))
    if origin in (tuple, frozenset):
        of_item = _reader(inner)
        return origin if of_item is None else lambda items: origin(map(of_item, items))
    if hint is datetime:
        return datetime.fromisoformat
    if hint is timedelta:
        return lambda seconds: timedelta(seconds=seconds)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    if isinstance(hint, type) and is_dataclass(hint):
        return getattr(hint, "from_dict", None) or partial(read_record, hint)
    return None


def raw_body(body: Any, content_encoding: Any) -> bytes:
    """The body as it was sent."""
    if isinstance(body, str):
        # py-amqp decodes a body by its content encoding.
        with contextlib.suppress(LookupError, TypeError, UnicodeError):
            return body.encode(content_encoding or "utf-8")
        return body.encode("utf-8", "surrogatepass")
    if body is None or isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body or b"")
    # On Redis, the body may be any JSON that another program has written.
    return dump_json(body).encode("ascii")


def _tagged(value: Any, levels: int = LEVELS) -> Any:
    """:raises RecursionError: it nests more deeply than ``levels``."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, (Mapping, list, tuple)):
        if levels == 0:
            raise RecursionError
        if isinstance(value, Mapping):
            return _tagged_mapping(value, levels - 1)
        return [_tagged(item, levels - 1) for item in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, datetime):
        return {"$datetime": value.isoformat()}
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    return value


def _tagged_mapping(value: Mapping[Any, Any], levels: int) -> dict[str, Any]:
    if all(isinstance(key, str) for key in value) and not _looks_tagged(value):
        return {key: _tagged(item, levels) for key, item in value.items()}
    return {
        "$table": [[_tagged(key, levels), _tagged(item, levels)] for key, item in value.items()]
    }


def _looks_tagged(value: Mapping[Any, Any]) -> bool:
    return len(value) == 1 and next(iter(value)) in _TAGS


def _stringly(value: Any, depth: int) -> Any:
    if depth == 0:
        return "…"
    if isinstance(value, Mapping):
        return {str(key): _stringly(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_stringly(item, depth - 1) for item in value]
    if value is None or isinstance(value, (str, bool)):
        return value
    is_short = isinstance(value, int) and value.bit_length() <= _BITS
    return value if is_short else safe_repr(value)


_READERS: dict[str, Callable[[Any], Any]] = {
    "$bytes": base64.b64decode,
    "$datetime": datetime.fromisoformat,
    "$decimal": Decimal,
    "$float": float,
}
_TAGS = frozenset({*_READERS, "$table"})

#: The types of nearly all headers.
_PLAIN = frozenset({str, int, bool, type(None)})

# json.dumps() would make one for each call.
_READABLE = json.JSONEncoder(
    allow_nan=False, default=lambda value: safe_text(str(value)), separators=(",", ":")
)
_DECODER = json.JSONDecoder()
_LOSSLESS = json.JSONEncoder(allow_nan=False, default=str, separators=(",", ":"))
