"""The built-in knowledge as a table: exception types and their meaning.

A row names its types by dotted name, so no library has to be imported. A type is looked up through its
classes, the most specific first, and each row that names one of them is asked in turn. Only if no row names
one of them, a row for their package counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from celery_dlq.classify.evidence import bases, dotted_name
from celery_dlq.classify.guarded import Memory
from celery_dlq.model.states import Verdict


@dataclass(frozen=True)
class Schedule:
    """A rule's own part of the retry schedule. A field that is None is left to the task."""

    #: Number of runs, the first included.
    max_attempts: int | None = None
    #: Upper bound of the first wait, in seconds; it doubles with each attempt.
    retry_backoff: float | None = None
    #: Upper bound of every wait, in seconds.
    retry_backoff_max: float | None = None


class Finding(NamedTuple):
    """The verdict of one rule on one exception."""

    verdict: Verdict
    rule: str
    evidence: str
    #: Seconds to wait when the exception itself does not say how long.
    retry_after: float | None = None
    #: The rule's own attempts and waits.
    schedule: Schedule | None = None
    #: Whether the other side asked for ``retry_after``.
    throttled: bool = False


def transient_if(condition: bool, rule: str, evidence: str) -> Finding:
    """A finding that is transient if the condition holds, and otherwise terminal."""
    return Finding(Verdict.TRANSIENT if condition else Verdict.TERMINAL, rule, evidence)


#: Reads an exception. None: it has no evidence for this rule; ask the next one.
Probe = Callable[[BaseException], Finding | None]


@dataclass(frozen=True)
class Row:
    """One row of the table: the meaning of exceptions of some types."""

    #: Stable id, such as ``http.status``.
    rule: str
    #: Dotted names of its types, according to the classes themselves. ``package.*`` means all types of the
    #: package, unless a row names one of their classes.
    names: tuple[str, ...]
    #: The verdict on the type as such.
    verdict: Verdict | None = None
    #: Decides by the attributes of the exception; asked first.
    probe: Probe | None = None
    #: Whether the type says "the network failed": transient unless a root cause says otherwise.
    network: bool = False
    #: Whether the type is a group, which is transient if all its members are.
    group: bool = False
    #: For people: the evidence that a probe or a wrapper decides by.
    depends_on: str = ""

    @property
    def wraps(self) -> bool:
        """Whether the type only wraps another exception, whatever it derives from."""
        return not (self.verdict or self.probe or self.network or self.group)


class Match(NamedTuple):
    """A row, and the class through which a type matched it."""

    row: Row
    name: str
    #: The row's verdict on the type itself; None if the row decides only by a probe, or not at all.
    finding: Finding | None


class Entry(NamedTuple):
    """All entries of the table for one type."""

    matches: tuple[Match, ...]
    #: Whether the generic probes apply: no row is about the library of the type, only about classes of
    #: Python or of other libraries that it derives from.
    is_open: bool
    #: Whether no row names the type itself, only classes above it.
    is_derived: bool
    is_group: bool


class Table:
    """Rows by dotted name, and a memory of which rows belong to a type.

    :raises ValueError: two rows name the same type.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows: tuple[Row, ...] = tuple(rows)
        self._by_name: dict[str, Row] = {}
        for row in self.rows:
            for name in row.names:
                if name in self._by_name:
                    raise ValueError(f"{name} is in the table twice: {row.rule}; remove one")
                self._by_name[name] = row
        #: The rows for a class, the most specific first. Verdicts are never cached.
        self.look_up: Memory[Entry] = Memory(self._find)

    def packages(self) -> frozenset[str]:
        """The top-level packages of the rows."""
        return frozenset(map(_package, self._by_name))

    def matches(self, names: Iterable[str]) -> tuple[Match, ...]:
        """The rows for the dotted names of a type's classes, the most specific first."""
        listed = tuple(names)
        named = tuple(_match(self._by_name[name], name) for name in listed if name in self._by_name)
        return named or self._of_a_package(listed)

    def _of_a_package(self, names: Iterable[str]) -> tuple[Match, ...]:
        """The row for the package of the first class whose package has one."""
        for name in names:
            package = name.rpartition(".")[0]
            while package:
                row = self._by_name.get(f"{package}.*")
                if row is not None:
                    return (_match(row, name),)
                package = package.rpartition(".")[0]
        return ()

    def _find(self, cls: type) -> Entry:
        names = [dotted_name(base) for base in bases(cls)]
        matches = self.matches(names)
        own, is_group = _package(names[0]), any(match.row.group for match in matches)
        known = {_package(match.name) for match in matches} - {"builtins"}
        is_derived = names[0] not in self._by_name
        return Entry(matches, own not in known and not is_group, is_derived, is_group)


def _package(name: str) -> str:
    return name.partition(".")[0]


def _match(row: Row, name: str) -> Match:
    verdict = Verdict.TRANSIENT if row.network else row.verdict
    if verdict is None:
        return Match(row, name, None)
    return Match(row, name, Finding(verdict, row.rule, f"type={name.removeprefix('builtins.')}"))
