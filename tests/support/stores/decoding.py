"""What a text says when all that is encoded in it is decoded: percent and HTML escapes, escapes of JSON and
Python, base64, hex, gzip and zlib."""

from __future__ import annotations

import base64
import binascii
import contextlib
import html
import re
import zlib
from collections.abc import Iterator
from urllib.parse import unquote

#: How often what was decoded is decoded again.
_DEPTH = 4

_BASE64 = re.compile(r"[A-Za-z0-9+/_\-]{12,}={0,2}")
_HEX = re.compile(r"(?:[0-9a-f]{2} ?){8,}")
_DUMP = re.compile(r"^[0-9a-f]{8}  (.{49})", re.MULTILINE)


def decoded(text: str) -> set[str]:
    """``text``, and all that it says."""
    found, new = set[str](), {text}
    for _ in range(_DEPTH):
        new |= set(map(_unescaped, new))
        new -= found
        found |= new
        new = {said for one in new for packed in _packed(one) for said in _texts_of(packed)}
    return found | new


def _unescaped(text: str) -> str:
    text = unquote(html.unescape(text)).replace("+", " ") if {*"%&"} & {*text} else text
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), text)
    return re.sub(r"\\(.)", r"\1", text)


def _packed(text: str) -> Iterator[bytes]:
    for match in _BASE64.finditer(text):
        digits = match[0].rstrip("=").replace("-", "+").replace("_", "/")
        with contextlib.suppress(binascii.Error):
            yield base64.b64decode(digits + "=" * (-len(digits) % 4))
    for digits in ("".join(_DUMP.findall(text)), *_HEX.findall(text)):
        with contextlib.suppress(ValueError):
            yield bytes.fromhex(digits)


def _texts_of(packed: bytes) -> Iterator[str]:
    for unpack in (bytes, zlib.decompress, lambda data: zlib.decompress(data, 31)):
        with contextlib.suppress(zlib.error):
            text = unpack(packed).decode("latin-1")
            # Most words look like base64, and mean nothing when they are decoded.
            if text and sum(map(str.isprintable, text)) > len(text) * 2 // 3:
                yield text
