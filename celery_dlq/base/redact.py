"""Copies that are safe to store and to show: bounded, without secrets, and made without running harmful
user code. Nothing here ever unpickles."""

from __future__ import annotations

import hmac
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from celery_dlq.base.sensitive import (
    REDACTED,
    IsSensitive,
    hide_in_traceback,
    hide_secrets,
    names_of_secrets,
    stands_for_secret,
)

#: The most characters of an exception's message that are kept.
MESSAGE_LIMIT = 8_192
#: The most characters of a traceback that are kept: its beginning and its end, which show entry and
#: cause.
TRACEBACK_LIMIT = 32_768
#: Characters of one displayed string, members of one container, levels, and values in total.
STRING_LIMIT, ITEM_LIMIT, DEPTH_LIMIT, VALUE_LIMIT = 1_024, 64, 6, 512

__all__ = [
    "ELIDED", "KNOWN", "LONGEST", "MESSAGE_LIMIT", "REDACTED", "TRACEBACK_LIMIT", "Redactor", "as_in_a_form",
    "clip", "clip_middle", "hide_known", "safe_message", "safe_repr", "safe_text", "text_of",
]  # fmt: skip

ELIDED = "…"

#: Characters of the longest value that people look for. Longer ones are texts rather than ids.
LONGEST = 255

#: The keys under which tables keep the name of a value, and the value: environments of containers, tags,
#: parameters.
_NAMED_VALUES = (("name", "value"), ("key", "value"), ("Name", "Value"), ("Key", "Value"))

_STAND_IN = re.compile(r"\[redacted:[0-9a-f]{32}\]")

_NOT_STORABLE = re.compile("[\x00\ud800-\udfff]")


class Redactor:
    """Makes copies that may be shown. They hide the secrets that ``sensitive`` recognizes by
    name or by pattern.

    :param extra: further parts of names to hide.
    :param search_key: makes a keyed hash of each secret that has a name, by which its letter is found. Empty
        for none.
    :param parameters: the names of the positional parameters of the task with a name; empty if they are
        unknown.
    """

    def __init__(
        self,
        extra: Iterable[str] = (),
        search_key: str = "",
        parameters: Callable[[str], Sequence[str]] = lambda _task: (),
    ) -> None:
        #: Whether a name stands for a secret.
        self.is_sensitive: IsSensitive = names_of_secrets(extra)
        #: Whether secrets have hashes.
        self.has_hashes: bool = bool(search_key)
        self._search_key = search_key.encode()
        self._parameters = parameters

    def display(self, value: object) -> Any:
        """A JSON-safe copy of ``value``: secrets hidden, long parts cut, other types as text."""
        return self._copy(value, DEPTH_LIMIT, _Budget(VALUE_LIMIT))

    def text(self, text: str) -> str:
        """``text`` without secrets."""
        return hide_secrets(text, self.is_sensitive)

    def traceback(self, text: str) -> str:
        """A traceback without secrets."""
        return hide_in_traceback(text, self.is_sensitive)

    def hidden(self, value: Any) -> Any:
        """The whole ``value`` except for secrets: tables, lists and texts are copied, other values are
        unchanged."""
        return self._whole(value, lambda _secret: REDACTED)

    def stored(self, value: Any) -> Any:
        """A copy like that of :meth:`hidden`, with stand-ins by which letters are found. A copy that may be
        shown stays as it is."""
        return self._whole(value, self.stand_in)

    def named(self, task: str, args: Any, stand_in: Callable[[Any], Any] | None = None) -> Any:
        """The positional arguments ``args`` of a call of ``task``, with stand-ins for those whose parameters
        have the names of secrets. Other values, and arguments beyond the named ones, are unchanged.

        :param stand_in: by default, :meth:`stand_in`.
        """
        # A message may hold anything in their place.
        if not isinstance(args, (list, tuple)):
            return args
        secret = [self.is_sensitive(name) for name in self._parameters(task)[: len(args)]]
        if not any(secret):
            return args
        hide, places = stand_in or self.stand_in, zip_longest(secret, args)
        return [hide(item) if hidden and item is not None else item for hidden, item in places]

    def _whole(self, value: Any, stand_in: Callable[[Any], str]) -> Any:
        try:
            return self._hidden(value, stand_in)
        except RecursionError:
            return self.display(value)

    def stand_in(self, secret: object) -> str:
        """The text that a display copy has in place of a secret. If secrets have hashes, equal secrets have
        equal stand-ins. A stand-in has itself as its stand-in."""
        text = _text_of_secret(secret) if self.has_hashes else None
        if text is None or _STAND_IN.fullmatch(text):
            return text or REDACTED
        sent = as_in_a_form(text).encode("utf-8", "surrogatepass")
        return f"[redacted:{hmac.new(self._search_key, sent, 'sha256').hexdigest()[:32]}]"

    def is_pair(self, value: Any) -> bool:
        """Whether ``value`` is a pair of a secret's name and the secret, as many libraries represent a
        header."""
        if len(value) != 2 or not isinstance(value, (list, tuple)):
            return False
        name = value[0]
        if isinstance(name, bytes):
            name = name[:STRING_LIMIT].decode("latin-1")
        return isinstance(name, str) and stands_for_secret(name[:STRING_LIMIT], self.is_sensitive)

    def _copy(self, value: object, depth: int, budget: _Budget) -> Any:
        budget.left -= 1
        if budget.left < 0:
            return ELIDED
        if isinstance(value, str):  # the most common types of arguments
            return self._short(value)
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
        return self._short(safe_repr(value))

    def _short(self, value: str) -> str:
        return self.text(clip(safe_text(value), STRING_LIMIT))

    def _copy_mapping(
        self, value: Mapping[Any, Any], depth: int, budget: _Budget
    ) -> dict[str, Any]:
        copy: dict[str, Any] = {}
        secret = self._key_of_secret(value)
        for position, (key, item) in enumerate(value.items()):
            if position == ITEM_LIMIT:
                copy[ELIDED] = f"{len(value) - ITEM_LIMIT} more"
                break
            name = clip(safe_text(key if isinstance(key, str) else safe_repr(key)), STRING_LIMIT)
            hidden = self.is_sensitive(name) or key == secret
            copy[self.text(name)] = (
                self.stand_in(item) if hidden else self._copy(item, depth - 1, budget)
            )
        return copy

    def _copy_items(self, value: Any, depth: int, budget: _Budget) -> list[Any]:
        if self.is_pair(value):
            return [self._copy(value[0], depth - 1, budget), self.stand_in(value[1])]
        copy = []
        for position, item in enumerate(value):
            if position == ITEM_LIMIT:
                copy.append(f"{ELIDED} {len(value) - ITEM_LIMIT} more")
                break
            copy.append(self._copy(item, depth - 1, budget))
        return copy

    def _hidden(self, value: Any, stand_in: Callable[[Any], str]) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            secret = self._key_of_secret(value)
            return {
                self.text(key) if isinstance(key, str) else key: (
                    stand_in(item)
                    if item is not None and (key == secret or self.is_sensitive(str(key)))
                    else self._hidden(item, stand_in)
                )
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            if self.is_pair(value):
                return [value[0], stand_in(value[1])]
            return [self._hidden(item, stand_in) for item in value]
        if isinstance(value, (bytes, bytearray, memoryview)):
            text = bytes(value).decode("latin-1")
            return value if self.text(text) == text else REDACTED
        return value

    def _key_of_secret(self, value: Mapping[Any, Any]) -> str | None:
        """The key of a secret that another key names, as in ``{"name": "API_KEY", "value": …}``."""
        for named, key in _NAMED_VALUES:
            if key in value:
                name = value.get(named)
                if isinstance(name, str) and stands_for_secret(
                    name[:STRING_LIMIT], self.is_sensitive
                ):
                    return key
        return None


_PLAIN = (str, int, float)

#: Hides the secrets of the built-in list, for code without an app that could add to it.
KNOWN = Redactor()


def hide_known(text: str) -> str:
    """``text`` without the secrets of the built-in list."""
    return KNOWN.text(text)


@dataclass
class _Budget:
    """How many more values a display copy may contain, over all its levels."""

    left: int


def _bounded_int(value: Any) -> Any:
    # str() of an int with more than 4300 digits raises, and JSON readers fail long before that.
    return value if value is None or -(2**63) <= value < 2**64 else ELIDED


def text_of(value: Any) -> str | None:
    """The text by which people look for ``value``; None if they do not."""
    if isinstance(value, bool) or value == REDACTED:
        return None
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str) and 0 < len(value.strip()) <= LONGEST:
        return value.strip()
    return None


def as_in_a_form(text: str) -> str:
    """``text`` with the characters that a browser changes when it sends a form: an act must be on the letters
    that the form was about."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def _text_of_secret(secret: object) -> str | None:
    # Other types may run the user's code, and Python refuses to write very large numbers.
    if type(secret) not in _PLAIN or (type(secret) is int and _bounded_int(secret) is ELIDED):
        return None
    return text_of(secret)


def safe_text(text: str) -> str:
    """``text`` without characters that databases refuse: NUL (PostgreSQL) and lone surrogates
    (UTF-8)."""
    if text.isascii() and "\x00" not in text:
        return text
    return _NOT_STORABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def clip(text: str, limit: int) -> str:
    """``text`` cut to ``limit`` characters; the cut is marked with the number of missing characters."""
    if len(text) <= limit:
        return text
    mark = f"{ELIDED} [{len(text) - limit} more characters]"
    return text[: max(0, limit - len(mark))] + mark


def clip_middle(text: str, limit: int) -> str:
    """``text`` cut to about ``limit`` characters, keeping the whole lines at its beginning and its end."""
    if len(text) <= limit:
        return text
    half = limit // 2
    # Part of a line may be part of a secret, which cannot be recognized without its name or its beginning.
    start, end = text[:half].rpartition("\n")[0] or text[:half], text[-half:].partition("\n")[2]
    left_out = len(text) - len(start) - len(end)
    return f"{start}\n{ELIDED} [{left_out} characters left out] {ELIDED}\n{end}"


def safe_message(exc: BaseException) -> str:
    """``str(exc)``, whatever the exception does: bounded and storable. Never raises."""
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
