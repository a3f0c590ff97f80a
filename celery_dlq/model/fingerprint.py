"""Identifies equal failures: a versioned hash over task, exception type, in-app frames and the message
without its variable parts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

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
    line = _first_line(message)
    for pattern, name, needed in _VARIABLE:
        if needed in line:
            line = pattern.sub(name, line)
    return line.strip()


def variable_parts(message: str) -> list[str]:
    """What :func:`normalise` replaces, quoted text without its quotes."""
    return _split(message)[1]


def fixed_parts(message: str) -> list[str]:
    """What :func:`normalise` keeps: the texts between the variable parts, the same in all messages of a
    group."""
    return _split(message)[0].split("\n")


def _split(message: str) -> tuple[str, list[str]]:
    """The first line with a line break for each variable part, and these parts."""
    line, found = _first_line(message), list[str]()

    def take(match: re.Match[str]) -> str:
        found.append(match[0].strip("'\"").strip())
        return "\n"  # which no other pattern takes

    for pattern, _name, needed in _VARIABLE:
        if needed in line:
            line = pattern.sub(take, line)
    return line, found


def _first_line(message: str) -> str:
    return message.lstrip().partition("\n")[0][:500]


@dataclass(frozen=True, kw_only=True)
class FingerprintInput:
    """A failure, as a recipe for fingerprints gets it."""

    task: str
    #: Dotted; builtins without their module.
    exception_type: str
    #: App frames as ``module:function``, outermost first; without line numbers, so that an edit elsewhere
    #: in the file does not split a group.
    frames: Sequence[str]
    #: The whole message.
    message: str

    @property
    def normalised_message(self) -> str:
        """The first line of the message with ids, times, addresses, quoted text and numbers replaced."""
        return normalise(self.message)

    @property
    def parts(self) -> tuple[str, ...]:
        """What the built-in recipe uses: task, exception type, the innermost frames, normalised message."""
        frames = self.frames[-FRAME_LIMIT:]
        return (self.task, self.exception_type, *frames, self.normalised_message)


def fingerprint(failure: FingerprintInput) -> str:
    """The group a failure belongs to by the built-in recipe, as 16 hexadecimal digits."""
    return _digest("\x1f".join((f"v{VERSION}", *failure.parts)))


def own_fingerprint(parts: Sequence[str]) -> str:
    """The group that a recipe of the user names by ``parts``, as 16 hexadecimal digits. It is never that of
    the built-in recipe."""
    # JSON keeps apart what joined texts would not, and begins with a character that the built-in one has not.
    return _digest(json.dumps([f"v{VERSION}", *parts]))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()
