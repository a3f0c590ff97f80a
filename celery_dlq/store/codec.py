"""Message headers and properties as text, without loss: they are sent back when a letter is redriven.

Plain JSON where JSON can say it; what it cannot (bytes, dates, decimals, non-finite numbers, tables
whose keys are no strings) as an object with one key that begins with ``$``.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from celery_dlq.letter import dump_json


def encode_table(table: Mapping[str, Any]) -> str:
    """``table`` as ASCII JSON that :func:`decode_table` reads back. Objects of other types, which no
    broker delivers, and nesting too deep for JSON become text."""
    try:
        return _ENCODER.encode(_encode(table))
    except (ValueError, RecursionError):
        return dump_json(table)


def decode_table(text: str) -> dict[str, Any]:
    """The inverse of :func:`encode_table`."""
    # Claims read thousands, and nearly all are plain.
    table = _decode(json.loads(text)) if '{"$' in text else json.loads(text)
    return table if isinstance(table, dict) else {}


def _encode(value: Any) -> Any:
    if value is None or type(value) in _PLAIN:
        return value
    if isinstance(value, Mapping):
        return _encode_mapping(value)
    if isinstance(value, (list, tuple)):
        return [_encode(item) for item in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, datetime):
        return {"$datetime": value.isoformat()}
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    return value


def _encode_mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    if all(isinstance(key, str) for key in value) and not _looks_tagged(value):
        return {key: _encode(item) for key, item in value.items()}
    return {"$table": [[_encode(key), _encode(item)] for key, item in value.items()]}


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if not _looks_tagged(value):
        return {key: _decode(item) for key, item in value.items()}
    ((tag, content),) = value.items()
    if tag == "$table":
        return {_decode(key): _decode(item) for key, item in content}
    return _READERS[tag](content)


def _looks_tagged(value: Mapping[Any, Any]) -> bool:
    return len(value) == 1 and next(iter(value)) in _TAGS


_READERS: dict[str, Callable[[Any], Any]] = {
    "$bytes": base64.b64decode,
    "$datetime": datetime.fromisoformat,
    "$decimal": Decimal,
    "$float": float,
}
_TAGS = frozenset({*_READERS, "$table"})

#: What nearly all headers are.
_PLAIN = frozenset({str, int, bool})

_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=str)
