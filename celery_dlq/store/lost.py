"""Messages that killed workers were running, on all machines, as far as the store knows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum


class ReportKind(str, Enum):
    """The kinds of reports about the flight recorder."""

    #: Messages of a killed worker that cannot be recovered, and why.
    STUCK = "stuck"
    #: Messages of a killed worker that the broker may still deliver again.
    WAITING = "waiting"
    #: A living worker that runs messages without a copy, and why.
    UNCOVERED = "uncovered"


@dataclass(frozen=True, kw_only=True)
class RecorderReport:
    """A worker's report about the flight recorder."""

    kind: ReportKind
    #: The directory or process that it is about. Several workers may report about the same directory.
    about: str
    #: The worker whose messages these are, and its machine; empty if they are unknown.
    worker: str
    host: str
    #: Messages; 0 if they cannot be counted.
    messages: int
    #: When the messages were accepted, or when the trouble began, by the clock of that machine.
    since: datetime
    why: str
    #: When it was last reported, by the clock of the store. Set by the store.
    seen_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class Lost:
    """The messages of killed workers, as far as the store knows them."""

    #: Open letters with the reason ``lost``.
    open: int
    #: Messages that became such letters within the last 24 hours.
    arrived: int
    #: The present reports of workers; the worst kinds first, then the oldest.
    reports: tuple[RecorderReport, ...]

    def of(self, *kinds: ReportKind) -> tuple[RecorderReport, ...]:
        """The reports of these kinds."""
        return tuple(one for one in self.reports if one.kind in kinds)


def messages_in(reports: Iterable[RecorderReport]) -> int:
    """How many messages ``reports`` are about."""
    return sum(one.messages for one in reports)
