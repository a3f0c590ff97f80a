"""Copies that are safe to store and to show: bounded, cut off at secrets, never executing user code
that can hurt. Nothing here ever unpickles."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: Characters of an exception's message that are kept.
MESSAGE_LIMIT = 8_192
#: Characters of a traceback that are kept: its head and its end, which hold entry and cause.
TRACEBACK_LIMIT = 32_768
#: Characters of one displayed string, members of one container, levels, and values in total.
STRING_LIMIT, ITEM_LIMIT, DEPTH_LIMIT, VALUE_LIMIT = 1_024, 64, 6, 512

REDACTED = "[redacted]"
ELIDED = "…"

#: Key names whose values are never copied for display. Matched as parts of a key, so that
#: ``stripe_api_key`` and ``X-Auth-Token`` are covered; ``dlq_redact`` adds to them.
SENSITIVE = (
    "password", "passwd", "passphrase", "secret", "token", "api_key", "apikey", "access_key",
    "private_key", "authorization", "cookie", "credential", "card_number", "cvv", "cvc", "iban", "ssn",
)  # fmt: skip

_NOT_STORABLE = re.compile("[\x00\ud800-\udfff]")


class Redactor:
    """Makes display copies of arguments.

    :param extra: further key parts to hide, beside :data:`SENSITIVE`.
    """

    def __init__(self, extra: Iterable[str] = ()) -> None:
        parts = sorted({_normalise_key(part) for part in (*SENSITIVE, *extra)})
        self._sensitive = re.compile("|".join(map(re.escape, parts)))

    def display(self, value: object) -> Any:
        """A JSON-safe copy of ``value``: secrets hidden, long parts elided, foreign types as text."""
        return self._copy(value, DEPTH_LIMIT, _Budget(VALUE_LIMIT))

    def _copy(self, value: object, depth: int, budget: _Budget) -> Any:
        budget.left -= 1
        if budget.left < 0:
            return ELIDED
        if isinstance(value, str):  # what most arguments are made of
            text = safe_text(value)
            return text if len(text) <= STRING_LIMIT else clip(text, STRING_LIMIT)
        if value is None or isinstance(value, (bool, int)):
            return _bounded_int(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if depth == 0:
            return ELIDED
        if isinstance(value, Mapping):
            return self._copy_mapping(value, depth, budget)
        if isinstance(value, (list, tuple, set, frozenset)):
            return self._copy_items(value, depth, budget)
        return clip(safe_repr(value), STRING_LIMIT)

    def _copy_mapping(
        self, value: Mapping[Any, Any], depth: int, budget: _Budget
    ) -> dict[str, Any]:
        copy: dict[str, Any] = {}
        for position, (key, item) in enumerate(value.items()):
            if position == ITEM_LIMIT:
                copy[ELIDED] = f"{len(value) - ITEM_LIMIT} more"
                break
            name = clip(safe_text(key if isinstance(key, str) else safe_repr(key)), STRING_LIMIT)
            hidden = self._sensitive.search(_normalise_key(name))
            copy[name] = REDACTED if hidden else self._copy(item, depth - 1, budget)
        return copy

    def _copy_items(self, value: Any, depth: int, budget: _Budget) -> list[Any]:
        copy = []
        for position, item in enumerate(value):
            if position == ITEM_LIMIT:
                copy.append(f"{ELIDED} {len(value) - ITEM_LIMIT} more")
                break
            copy.append(self._copy(item, depth - 1, budget))
        return copy


@dataclass
class _Budget:
    """How many values a display copy may still hold, over all its levels."""

    left: int


def _normalise_key(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "_")


def _bounded_int(value: Any) -> Any:
    # str() of an int beyond 4300 digits raises, and JSON readers choke long before that.
    return value if value is None or -(2**63) <= value < 2**64 else ELIDED


def safe_text(text: str) -> str:
    """``text`` without what databases refuse: NUL (PostgreSQL) and lone surrogates (UTF-8)."""
    if text.isascii() and "\x00" not in text:
        return text
    return _NOT_STORABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def clip(text: str, limit: int) -> str:
    """``text`` cut to ``limit`` characters, the cut marked with how much is missing."""
    if len(text) <= limit:
        return text
    mark = f"{ELIDED} [{len(text) - limit} more characters]"
    return text[: max(0, limit - len(mark))] + mark


def clip_middle(text: str, limit: int) -> str:
    """``text`` cut to about ``limit`` characters, keeping its beginning and its end."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n{ELIDED} [{len(text) - 2 * half} characters left out] {ELIDED}\n{text[-half:]}"


def safe_message(exc: BaseException) -> str:
    """``str(exc)``, whatever the exception does: bounded, storable, never raising."""
    try:
        text = str(exc)
    except BaseException as error:  # noqa: BLE001 - a hostile __str__ may raise anything
        return f"<message unavailable: __str__ raised {type(error).__name__}>"
    return clip(safe_text(str.__str__(text)), MESSAGE_LIMIT)


def safe_repr(value: object) -> str:
    """``repr(value)``, whatever the object does."""
    try:
        return safe_text(str.__str__(repr(value)))
    except BaseException as error:  # noqa: BLE001 - a hostile __repr__ may raise anything
        return f"<{type(value).__name__}: __repr__ raised {type(error).__name__}>"
