"""Values as JSON: for databases and readers, and without loss for what is sent back on a redrive.

Plain JSON where JSON can say it. What it cannot (bytes, dates, decimals, non-finite numbers, tables
whose keys are no strings) becomes an object with one key that begins with ``$``.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from celery_dlq.redact import safe_text

#: Levels that are kept of a value that nests too deeply for JSON.
_DEPTH = 32


def dump_json(value: Any) -> str:
    """JSON that every database and reader takes: ASCII, without NaN, foreign objects as text."""
    try:
        return _READABLE.encode(value)
    except (TypeError, ValueError, RecursionError):
        return _READABLE.encode(_stringly(value, _DEPTH))


def encode_table(table: Mapping[str, Any]) -> str:
    """``table`` as ASCII JSON that :func:`decode_table` reads back. Objects of other types, which no
    broker delivers, and nesting too deep for JSON become text."""
    try:
        return _LOSSLESS.encode(_tagged(table))
    except (ValueError, RecursionError):
        return dump_json(table)


def decode_table(text: str) -> dict[str, Any]:
    """The inverse of :func:`encode_table`."""
    table = decode_plain(text)
    if is_tagged(text):
        table = read_plain_form(table)
    return table if isinstance(table, dict) else {}


def decode_plain(text: str) -> Any:
    """What ``text`` says where it is not tagged."""
    # Redrives read thousands. json.loads() would look for blanks around it, too.
    value, _end = _DECODER.raw_decode(text)
    return value


def is_tagged(text: str) -> bool:
    """Whether something in ``text`` may stand for what JSON cannot say."""
    return '{"$' in text


def plain_form(value: Any) -> Any:
    """``value`` made of what JSON knows, as :func:`read_plain_form` reads it back. Objects of other
    types are left as they are, and nesting too deep for JSON becomes text."""
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


def _tagged(value: Any) -> Any:
    if value is None or type(value) in _PLAIN:
        return value
    if isinstance(value, Mapping):
        return _tagged_mapping(value)
    if isinstance(value, (list, tuple)):
        return [_tagged(item) for item in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, datetime):
        return {"$datetime": value.isoformat()}
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    return value


def _tagged_mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    if all(isinstance(key, str) for key in value) and not _looks_tagged(value):
        return {key: _tagged(item) for key, item in value.items()}
    return {"$table": [[_tagged(key), _tagged(item)] for key, item in value.items()]}


def _looks_tagged(value: Mapping[Any, Any]) -> bool:
    return len(value) == 1 and next(iter(value)) in _TAGS


def _stringly(value: Any, depth: int) -> Any:
    if depth == 0:
        return "…"
    if isinstance(value, Mapping):
        return {str(key): _stringly(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_stringly(item, depth - 1) for item in value]
    return value if value is None or isinstance(value, (str, bool, int)) else str(value)


def _foreign(value: object) -> str:
    return safe_text(str(value))


_READERS: dict[str, Callable[[Any], Any]] = {
    "$bytes": base64.b64decode,
    "$datetime": datetime.fromisoformat,
    "$decimal": Decimal,
    "$float": float,
}
_TAGS = frozenset({*_READERS, "$table"})

#: What nearly all headers are.
_PLAIN = frozenset({str, int, bool})

# json.dumps() would make one for each call.
_READABLE = json.JSONEncoder(allow_nan=False, default=_foreign, separators=(",", ":"))
_DECODER = json.JSONDecoder()
_LOSSLESS = json.JSONEncoder(allow_nan=False, default=str, separators=(",", ":"))
