"""Identifies equal failures: a versioned hash of the facts by which causes differ."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby

#: Changes with the recipe, so that old and new fingerprints are never confused.
VERSION = 2

#: The most own frames that are used, counted from where the exception was raised.
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

#: Characters around a word that are not part of it.
_AROUND = ".,;:!?()[]{}'\"`\u201c\u201d\u2018\u2019\u00ab\u00bb"


def normalise(message: str) -> str:
    """The first line of ``message`` with ids, times, addresses, quoted text and numbers replaced."""
    line = _first_line(message)
    for pattern, name, needed in _VARIABLE:
        if needed in line:
            line = pattern.sub(name, line)
    return line.strip()


def fixed_words(message: str, variable: Collection[str]) -> str:
    """``message`` as :func:`normalise` makes it, with paths and the words of ``variable`` replaced, too.
    Several such words in a row count as one, because a name may have any number of words."""
    words = (_fixed(word, variable) for word in normalise(message).split())
    return " ".join(word for word, _ in groupby(words))


def _fixed(word: str, variable: Collection[str]) -> str:
    if "/" in word or "\\" in word:
        return "<path>"
    return "<arg>" if word.strip(_AROUND).lower() in variable else word


def words_of(texts: Sequence[str]) -> frozenset[str]:
    """The words of some values, as :func:`fixed_words` compares them."""
    return frozenset(word.strip(_AROUND).lower() for text in texts for word in text.split())


def variable_parts(message: str) -> list[str]:
    """The parts that :func:`normalise` replaces, quoted text without its quotes."""
    return _split(message)[1]


def fixed_parts(message: str) -> list[str]:
    """The parts that :func:`normalise` keeps: the texts between the variable ones."""
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
class Grounds:
    """The facts about a failure by which it is grouped, in addition to its task and its exception's type. The
    letter keeps them, so that another recipe can group it again."""

    #: As ``module:function``, outermost first, each once.
    frames: tuple[str, ...] = ()
    #: Whether the frames are the user's own. Without own frames, they are those of libraries.
    is_own: bool = True
    #: The names in the lines of the innermost own frames, the line that raised last, as the compiled code has
    #: them. They are the same on machines without the source, and while a deployment replaces it.
    lines: tuple[str, ...] = ()
    #: Codes that the exception or its cause carries, such as ``status=404``.
    evidence: tuple[str, ...] = ()
    #: The types of the exceptions that it was raised from, or of the members of a group.
    causes: tuple[str, ...] = ()
    #: Whether such failures differ only in their messages.
    needs_message: bool = False
    #: The name of the user's recipe that made the fingerprint; empty for the built-in one.
    recipe: str = ""

    def in_words(self) -> str:
        """Why a letter is in its group."""
        if self.recipe:
            return f"by the recipe {self.recipe}"
        by = ["task", "exception"]
        if self.frames:
            number, kind = len(self.frames), "own" if self.is_own else "library"
            by.append(f"{number} {kind} frame{'' if number == 1 else 's'}")
        if self.lines:
            by.append("the line that raised")
        by += [one.replace("=", " ") for one in self.evidence]
        if self.causes:
            by.append(f"cause {', '.join(self.causes)}")
        also = "the fixed words of the message" if self.needs_message else ""
        *most, last = [*by, also] if also else by
        end = "" if also else "; the message is not used"
        return f"by {', '.join(most)} and {last}{end}"


@dataclass(frozen=True, kw_only=True)
class FingerprintInput:
    """A failure, as a recipe for fingerprints gets it."""

    task: str
    #: Dotted; builtins without their module.
    exception_type: str
    #: Own frames as ``module:function``, outermost first, each once; without line numbers, so that an edit
    #: elsewhere in the file does not split a group. Without own frames, the frames of libraries.
    frames: Sequence[str]
    #: The whole message.
    message: str
    #: The names in the lines of the two innermost own frames, without literals; the line that raised is last.
    lines: Sequence[str] = ()
    #: Codes that the exception or its cause carries, such as ``status=404`` or ``sqlstate=23505``.
    evidence: Sequence[str] = ()
    #: The types of the exceptions that it was raised from, or of the members of a group.
    causes: Sequence[str] = ()
    #: The fixed words of the message, if such failures differ only in their messages; otherwise empty.
    words: str = ""

    @classmethod
    def of(
        cls, task: str, exception_type: str, message: str, grounds: Grounds, words: str
    ) -> FingerprintInput:
        """The input of a failure with these ``grounds``."""
        return cls(
            task=task, exception_type=exception_type, message=message, frames=grounds.frames,
            lines=grounds.lines, evidence=grounds.evidence, causes=grounds.causes, words=words,
        )  # fmt: skip

    @property
    def normalised_message(self) -> str:
        """The first line of the message with ids, times, addresses, quoted text and numbers replaced."""
        return normalise(self.message)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the built-in fingerprint: task, exception type, the innermost frames, lines, evidence,
        causes, and the words of the message. Those that are unknown or unused are left out."""
        return (*self._place, *self.evidence, *self.causes, *([self.words] if self.words else []))

    @property
    def place(self) -> str:
        """The fingerprint of the place in the code, without the message of the failure. If one place makes
        too many groups, they are folded into one."""
        return _digest(json.dumps([f"v{VERSION} place", *self._place]))

    @property
    def _place(self) -> tuple[str, ...]:
        return (self.task, self.exception_type, *self.frames[-FRAME_LIMIT:], *self.lines)


def fingerprint(failure: FingerprintInput) -> str:
    """The fingerprint of a failure by the built-in recipe, as 16 hexadecimal digits."""
    return _digest("\x1f".join((f"v{VERSION}", *failure.parts)))


def own_fingerprint(parts: Sequence[str]) -> str:
    """The fingerprint that a recipe of the user names by ``parts``, as 16 hexadecimal digits. It is never
    that of the built-in recipe."""
    # JSON keeps apart what joined texts would not, and begins with a character that the built-in one has not.
    return _digest(json.dumps([f"v{VERSION}", *parts]))


def within(namespace: str, digest: str) -> str:
    """A fingerprint or a place as it is in a namespace: two apps with the same failure have two groups."""
    return _digest(f"{namespace}\0{digest}") if namespace and digest else digest


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()
