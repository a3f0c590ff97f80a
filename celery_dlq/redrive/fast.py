"""What takes time with each body, by libraries that take a tenth of Python's own, where they are installed
(``celery-dlq[fast]``)."""

from __future__ import annotations

import base64
import json
from typing import Any

try:
    import orjson
    import pybase64
except ImportError:
    orjson = pybase64 = None  # type: ignore[assignment]


def in_base64(body: bytes) -> str:
    """``body`` in base64, without line breaks."""
    if pybase64 is not None:
        return pybase64.b64encode_as_string(body)
    return base64.b64encode(body).decode("ascii")


def read_json(body: bytes) -> Any:
    """What ``body`` says in JSON; of numbers only that they are some.

    :raises ValueError: it is no JSON.
    """
    if orjson is not None:
        try:
            return orjson.loads(body)
        except ValueError:
            pass  # Python reads more: NaN, and halves of surrogates
    return json.loads(body)
