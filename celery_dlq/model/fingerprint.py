"""Identifies equal failures: a versioned hash over task, exception type, in-app frames and the message
without its variable parts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

#: Changes with the recipe, so that old and new fingerprints are never confused.
VERSION = 1

#: The most in-app frames that are used, counted from where the exception was raised.
FRAME_LIMIT = 5

# Order matters: longer, more specific patterns come first. With each pattern, a text that a line must
# contain for it to match: without an @, searching for addresses takes quadratic time.
_VARIABLE = (
    (re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.I), "<uuid>", "-"),
    (re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"),
     "<time>", "-"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "<ip>", "."),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "<email>", "@"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.I), "<hex>", "0"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b", re.I), "<hex>", ""),
    (re.compile(r"'[^'\n]{0,200}'|\"[^\"\n]{0,200}\""), "<str>", ""),
    (re.compile(r"\d+(?:[.,]\d+)*"), "<n>", ""),
)  # fmt: skip


def normalise(message: str) -> str:
    """The first line of ``message`` with ids, times, addresses, quoted text and numbers replaced."""
    line = message.lstrip().partition("\n")[0][:500]
    for pattern, name, needed in _VARIABLE:
        if needed in line:
            line = pattern.sub(name, line)
    return line.strip()


def fingerprint(task: str, exception_type: str, frames: Sequence[str], message: str) -> str:
    """The group a failure belongs to, as 16 hexadecimal digits.

    :param frames: in-app frames as ``module:function``, outermost first; without line numbers, so
        that an edit elsewhere in the file does not split a group.
    """
    parts = (f"v{VERSION}", task, exception_type, *frames[-FRAME_LIMIT:], normalise(message))
    digest = hashlib.blake2b("\x1f".join(parts).encode("utf-8", "backslashreplace"), digest_size=8)
    return digest.hexdigest()
