"""Values of several letters side by side."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from celery_dlq.model.letter import DeadLetter
from celery_dlq.view.letters import WholeLetter, argument_values
from celery_dlq.view.traceback import own_traceback

#: Arguments of a letter, characters of a value, and lines of a traceback.
_ARGUMENTS, _VALUE, _LINES = 50, 2_000, 200

#: The facts that are compared, in this order.
_FACTS = (
    "Exception", "Message", "Release", "Worker", "Task", "State", "Reason", "Rule", "Evidence", "Attempts",
    "Redriven", "First failed", "Last failed", "Queue", "Route", "Tags", "Part of", "Group",
)  # fmt: skip

#: The most words of a value in which differences are looked for: the time grows with their square.
_WORDS = 200

_WORD = re.compile(r"\w+|\W")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A value of several letters, such as an argument."""

    name: str
    #: The value of each letter; None if the letter does not have it.
    values: Sequence[str | None]

    @property
    def differs(self) -> bool:
        """Whether the letters have different values."""
        return len(set(self.values)) > 1

    @property
    def marked(self) -> list[list[tuple[str, bool]]]:
        """The values of two letters in pieces, each with whether the other value lacks it."""
        texts = [value or "" for value in self.values]
        pair = [_WORD.findall(text) for text in texts]
        if max(map(len, pair)) > _WORDS:
            return [[(text, False)] for text in texts]
        return [_pieces(*pair), _pieces(*reversed(pair))]


def _pieces(one: list[str], other: list[str]) -> list[tuple[str, bool]]:
    found: list[tuple[str, bool]] = []
    place = 0
    for block in difflib.SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks():
        end = block.a + block.size
        parts = (("".join(one[place : block.a]), True), ("".join(one[block.a : end]), False))
        found += [part for part in parts if part[0]]
        place = end
    return found


def side_by_side(tables: Sequence[Mapping[str, str]]) -> list[Compared]:
    """The values of several letters by their names, in the order of the first letter that has them."""
    names = dict.fromkeys(name for table in tables for name in table)
    return [Compared(name=name, values=[table.get(name) for table in tables]) for name in names]


def arguments_of(letter: DeadLetter, parameters: Sequence[str]) -> dict[str, str]:
    """The arguments by path, with the names of ``parameters``; the items of a list are joined."""
    found: dict[str, list[str]] = {}
    for path, value in argument_values(letter, parameters, _ARGUMENTS):
        found.setdefault(path, []).append(value)
    return {path: ", ".join(values) for path, values in found.items()}


def compared(
    letters: Sequence[DeadLetter],
    parameters: Callable[[str], Sequence[str]],
    moment: Callable[[datetime], str],
) -> list[Compared]:
    """The arguments of ``letters``, and then the facts about them.

    :param parameters: the names of a task's positional parameters.
    :param moment: writes a time.
    """
    arguments = [arguments_of(letter, parameters(letter.task)) for letter in letters]
    facts = [dict(_facts(letter, moment)) for letter in letters]
    return [*side_by_side(arguments), *side_by_side(facts)]


def own_tracebacks(letters: Sequence[DeadLetter]) -> list[list[str]]:
    """The lines of their tracebacks, without the frames of libraries."""
    texts = (own_traceback(letter.traceback).rstrip() for letter in letters)
    return [text.split("\n")[:_LINES] for text in texts]


def difference(one: Sequence[str], other: Sequence[str]) -> str:
    """The change from the lines ``one`` to ``other``, as lines of a diff; empty if they are equal."""
    # The first two lines would name files.
    lines = [*difflib.unified_diff(one, other, lineterm="")][2:]
    return "\n".join("…" if line[:2] == "@@" else f"{line[0]} {line[1:]}" for line in lines)


def _facts(letter: DeadLetter, moment: Callable[[datetime], str]) -> Iterator[tuple[str, str]]:
    """The facts about a letter that have a value."""
    facts = dict(WholeLetter(letter=letter).facts())
    for name in _FACTS:
        value = facts[name]
        if value not in (None, ""):
            yield name, moment(value) if isinstance(value, datetime) else str(value)[:_VALUE]
