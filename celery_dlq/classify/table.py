"""The built-in knowledge as a table: which exception types there are, and what they mean.

A row names its types by dotted name, so that knowing a library does not import it. A type is looked
up through its classes, the most specific first, and each row that names one of them is asked in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

from celery_dlq.classify.evidence import bases, dotted_name
from celery_dlq.states import Verdict


@dataclass(frozen=True)
class Finding:
    """What one rule has to say about one exception."""

    verdict: Verdict
    rule: str
    evidence: str
    #: Seconds to wait when the exception itself does not say how long.
    retry_after: float | None = None


#: Reads an exception. None: this exception carries nothing to decide by; ask on.
Probe = Callable[[BaseException], Finding | None]


@dataclass(frozen=True)
class Row:
    """One line of the table. Exactly one of the kinds that the functions below make."""

    #: Stable id, such as ``http.status``.
    rule: str
    #: Dotted names of the types it is about, as the classes themselves state them.
    names: tuple[str, ...]
    #: The verdict on the type as such.
    verdict: Verdict | None = None
    #: Decides by what the exception carries; asked before all else of the row.
    probe: Probe | None = None
    #: Whether the type says "the network failed": transient unless a root cause says otherwise.
    network: bool = False
    #: Whether the type is a group: as transient as all its members are.
    group: bool = False
    #: For people: what a probe, or a wrapper, decides by.
    depends_on: str = ""
    #: Whether types below this one are unknown enough for the generic probes.
    open_below: bool = False


class Match(NamedTuple):
    """A row, and the class through which a type came to it."""

    row: Row
    name: str


class Entry(NamedTuple):
    """All that the table knows of one type."""

    matches: tuple[Match, ...]
    #: Whether the generic probes apply: no library row knows the type.
    is_open: bool
    is_group: bool


class Table:
    """Rows by dotted name, and a memory of which rows belong to a type.

    :raises ValueError: two rows name the same type.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = tuple(rows)
        self._by_name: dict[str, Row] = {}
        for row in self.rows:
            for name in row.names:
                if name in self._by_name:
                    raise ValueError(f"{name} is in the table twice: {row.rule}; remove one")
                self._by_name[name] = row
        # Weak, because libraries make exception classes at run time (botocore, Celery); never
        # keyed by id(), because ids are given out again.
        self._known: WeakKeyDictionary[type, Entry] = WeakKeyDictionary()

    def look_up(self, cls: type) -> Entry:
        """The rows for ``cls``, the most specific first. No verdict is ever remembered."""
        try:
            entry = self._known.get(cls)
            if entry is None:
                entry = self._known[cls] = self._find(cls)
        except BaseException:  # noqa: BLE001 - a metaclass may define a __hash__ that raises
            return self._find(cls)
        return entry

    def _find(self, cls: type) -> Entry:
        names = (dotted_name(base) for base in bases(cls))
        matches = tuple(Match(self._by_name[name], name) for name in names if name in self._by_name)
        return Entry(
            matches,
            is_open=all(match.row.open_below for match in matches),
            is_group=any(match.row.group for match in matches),
        )


def within(module: str, names: str) -> tuple[str, ...]:
    """The dotted names of several classes of one module; ``names`` separated by blanks."""
    return tuple(f"{module}.{name}" for name in names.split())


def transient(rule: str, *names: str) -> Row:
    """Types that are transient as such."""
    return Row(rule, names, verdict=Verdict.TRANSIENT)


def terminal(rule: str, *names: str) -> Row:
    """Types that are terminal as such."""
    return Row(rule, names, verdict=Verdict.TERMINAL)


def probed(rule: str, probe: Probe, depends_on: str, *names: str, open_below: bool = False) -> Row:
    """Types that are decided by what the exception carries."""
    return Row(rule, names, probe=probe, depends_on=depends_on, open_below=open_below)


def network(rule: str, *names: str, probe: Probe | None = None) -> Row:
    """Types that say "the network failed", whatever was the matter with it."""
    depends_on = "a certificate, unknown host, bad URL or refusal behind it; else transient"
    return Row(rule, names, probe=probe, network=True, depends_on=depends_on)


def wrapper(rule: str, depends_on: str, *names: str) -> Row:
    """Types that only stand for another exception."""
    return Row(rule, names, depends_on=depends_on)


def group(rule: str, *names: str) -> Row:
    """Types that hold other exceptions."""
    return Row(rule, names, group=True, depends_on="the members: all have to be transient")
