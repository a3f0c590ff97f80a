"""``google.rpc.RetryInfo`` in the trailer ``grpc-status-details-bin``, read without protobuf.

The trailer is a ``google.rpc.Status`` (google/rpc/status.proto): field 3 repeats ``google.protobuf.Any``,
whose field 1 is the type and 2 the message; ``RetryInfo`` (google/rpc/error_details.proto) has a
``google.protobuf.Duration`` in field 1: seconds in its field 1, nanoseconds in 2.
"""

from __future__ import annotations

from collections.abc import Iterator

_TYPE = b"type.googleapis.com/google.rpc.RetryInfo"

#: The most bytes of a trailer that are read; servers limit all their headers to 8 kB.
_LIMIT = 16_384

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Field = tuple[int, int | bytes]


def retry_delay(status: bytes) -> float | None:
    """Seconds to wait, from a serialised ``google.rpc.Status``; None if it has no RetryInfo."""
    try:
        for detail in _messages(status[:_LIMIT], 3):
            if next(_messages(detail, 1), b"") == _TYPE:
                return _delay(next(_messages(detail, 2), b""))
    except ValueError:
        return None
    return None


def _delay(retry_info: bytes) -> float | None:
    for duration in _messages(retry_info, 1):
        parts = {number: value for number, value in _fields(duration) if type(value) is int}
        return _signed(parts.get(1, 0)) + _signed(parts.get(2, 0)) / 1e9
    return None


def _signed(varint: int) -> int:
    return varint - (1 << 64) if varint >> 63 else varint


def _messages(data: bytes, wanted: int) -> Iterator[bytes]:
    for number, value in _fields(data):
        if number == wanted and isinstance(value, bytes):
            yield value


def _fields(data: bytes) -> Iterator[Field]:
    """The fields of a message in the wire format (protobuf.dev/programming-guides/encoding).

    :raises ValueError: the bytes are not a message.
    """
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        kind = tag & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield tag >> 3, value
            continue
        size, position = _size(data, position, kind)
        if position + size > len(data):
            raise ValueError("a field is cut off")
        yield tag >> 3, data[position : position + size]
        position += size


def _size(data: bytes, position: int, kind: int) -> tuple[int, int]:
    if kind == _BYTES:
        return _varint(data, position)
    if kind == _FIXED64:
        return 8, position
    if kind == _FIXED32:
        return 4, position
    raise ValueError(f"{kind} is not a wire type")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise ValueError("a number is cut off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << 64) - 1), position
    raise ValueError("a number is too long")
