"""The overview: the numbers that matter, the groups that need a person, arrivals, running redrives, messages
of killed workers, and what is kept of closed letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from celery_dlq.flower.html import charts
from celery_dlq.flower.html.links import Links
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.request import asked
from celery_dlq.flower.pages.arrivals import Arrivals, all_arrivals
from celery_dlq.flower.pages.groups.rows import GroupRow, KnownGroups, group_rows, known_groups
from celery_dlq.flower.pages.letters.listing import Row, rows_of
from celery_dlq.flower.pages.operations.listing import OperationRow, operation_rows
from celery_dlq.flower.ranges import Range, read_range
from celery_dlq.flower.triage import what_was_done
from celery_dlq.model.group import Mark
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import OPEN_STATES, State
from celery_dlq.store.base import Filter, Operation, Stats
from celery_dlq.store.keeping import Keeping
from celery_dlq.store.lost import RecorderReport
from celery_dlq.view import times
from celery_dlq.view.groups import MOST_MARKED, worklist
from celery_dlq.view.operations import UNDER_WAY
from celery_dlq.view.stats import (
    Fact,
    Losses,
    NamedPile,
    archive_facts,
    losses_of,
    lost_facts,
    messages_of,
    named_ages,
    retention_facts,
    said_why,
)
from celery_dlq.view.text import last_part

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Rows per list, and reports of workers.
_TOP, _MOST_REPORTS = 8, 20

#: Groups in the worklist.
_WORST = 10

#: The range of the chart unless another one is asked for.
_USUAL_RANGE = "24h"

#: A rate of arrivals counts as unusual from this many times the usual rate, and this many letters in an hour.
_UNUSUAL_TIMES, _UNUSUAL_LEAST = 3, 5


@dataclass(frozen=True, kw_only=True)
class Known:
    """The store's data for the page, read at one moment."""

    at: datetime
    stats: Stats
    keeping: Keeping
    #: How many groups have each mark.
    marked: Mapping[Mark, int]
    #: The worst groups, in the order in which they need a person.
    worst: KnownGroups
    recent: Sequence[DeadLetter]
    operations: Sequence[Operation]


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A name and its count, as a bar that links to the letters."""

    name: str
    whole: str
    count: int
    chart: str
    address: str


@dataclass(frozen=True, kw_only=True)
class Number:
    """One of the numbers that matter."""

    name: str
    value: str
    address: str
    #: What puts the number into proportion.
    remark: str = ""
    is_bad: bool = False


@dataclass(frozen=True, kw_only=True)
class ReportRow:
    """What a worker reports about the flight recorder."""

    report: RecorderReport
    messages: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The values of the page."""

    known: Known
    losses: Losses
    links: Links
    rows: Sequence[GroupRow]
    arrivals: Arrivals
    #: What an act on a row has done.
    done: str = ""

    @property
    def stats(self) -> Stats:
        """The numbers."""
        return self.known.stats

    @property
    def depth(self) -> str:
        """The open letters by state, as a chart."""
        parts = [
            charts.Part(state.value, self.stats.by_state.get(state, 0), state.value)
            for state in State
            if state in OPEN_STATES
        ]
        return charts.stack(parts, "Open letters by state")

    @property
    def states(self) -> list[tuple[State, int]]:
        """The states with letters, and their counts."""
        return [(state, count) for state, count in self.stats.by_state.items() if count]

    @property
    def reasons(self) -> list[Bar]:
        """Open letters by reason."""
        by_reason = {reason.value: count for reason, count in self.stats.by_reason.items()}
        return self._bars(by_reason, "reason")

    @property
    def exceptions(self) -> list[Bar]:
        """Open letters by exception."""
        return self._bars(self.stats.by_exception, "exception")

    @property
    def tasks(self) -> list[Bar]:
        """Open letters by task."""
        return self._bars(self.stats.by_task, "task")

    @property
    def ages(self) -> list[Bar]:
        """Open letters by the time since their last failure; empty ages are left out."""
        names, bounds = times.age_names(self.stats.ages), [0.0, *self.stats.ages]
        top = max(names.values(), default=0)
        return [
            Bar(
                name=name, whole=name, count=count,
                chart=charts.bar(count, top, f"{name}: {count:,}"),
                address=self.links.letters(**_between(youngest, oldest)),
            )
            for (name, count), (youngest, oldest) in zip(
                names.items(), pairwise(bounds), strict=True
            )
            if count
        ]  # fmt: skip

    @property
    def numbers(self) -> list[Number]:
        """The numbers that matter beside the open letters; those of zero are left out, except arrivals."""
        held = self.stats.held
        running = len(self.known.operations)
        rest = [
            self._marked(Mark.REGRESSED),
            self._marked(Mark.NEW),
            Number(
                name="Held for a person", value=f"{held:,}", address=self.links.letters(held="1")
            ),
            Number(
                name="Redrives under way", value=_at_most(running, _TOP),
                address=self.links.page("operations"),
            ),
        ]  # fmt: skip
        return [self._arrived(), *(number for number in rest if number.value != "0")]

    def _marked(self, mark: Mark) -> Number:
        marked = self.known.marked[mark]
        return Number(
            name=f"{mark.value.capitalize()} groups",
            value=_at_most(marked, MOST_MARKED),
            address=self.links.page("groups", query=[("mark", mark.value)]),
            is_bad=mark is Mark.REGRESSED,
        )

    def _arrived(self) -> Number:
        last, usual = self.stats.arrivals[-1] if self.stats.arrivals else 0, self.stats.usual
        return Number(
            name="Arrived in the last hour",
            value=f"{last:,}",
            address=self.links.letters(since="1h"),
            remark="" if usual is None else f"usually {_rounded(usual)}",
            is_bad=usual is not None and last >= max(_UNUSUAL_LEAST, _UNUSUAL_TIMES * usual),
        )

    @property
    def breakdowns(self) -> list[tuple[str, str, list[Bar]]]:
        """The open letters by what tells them apart: name, title, and bars. One bar would tell nothing."""
        found = [
            ("reasons", "Reasons", self.reasons),
            ("exceptions", "Exceptions", self.exceptions),
            ("tasks", "Tasks", self.tasks),
            ("ages", "Age since the last failure", self.ages),
        ]
        return [one for one in found if len(one[2]) > 1]

    @property
    def recent(self) -> list[Row]:
        """The newest letters."""
        return rows_of(self.known.recent)

    @property
    def operations(self) -> list[OperationRow]:
        """The operations that are not finished."""
        return operation_rows(self.known.operations)

    @property
    def kept_facts(self) -> list[Fact]:
        """What the last round of retention has done and left, and what is in the archive."""
        found = self.known.keeping
        retention = [] if found.round is None else retention_facts(found.round, self.known.at)
        return [(name, value) for name, value in (*retention, *archive_facts(found)) if value]

    @property
    def kept_ages(self) -> list[tuple[NamedPile, str]]:
        """Closed letters by the time since they were closed, each with its chart."""
        found = self.known.keeping.round
        named = [] if found is None else named_ages(found.kept.ages)
        top = max((one.pile.letters for one in named), default=0)
        return [
            (one, charts.bar(one.pile.letters, top, f"{one.name}: {one.pile.letters:,}"))
            for one in named
        ]

    @property
    def lost_facts(self) -> list[Fact]:
        """Lost letters, and messages that wait in the files of Flower's machine."""
        return [(name, value) for name, value in lost_facts(self.losses) if value]

    @property
    def reports(self) -> list[ReportRow]:
        """What workers report about killed workers, and about messages without a copy."""
        return [
            ReportRow(report=one, messages=messages_of(one), why=said_why(one))
            for one in self.losses.lost.reports[:_MOST_REPORTS]
        ]

    @property
    def more_reports(self) -> int:
        """How many reports are not shown."""
        return max(0, len(self.losses.lost.reports) - _MOST_REPORTS)

    def _bars(self, counts: Mapping[str, int], filtered_by: str) -> list[Bar]:
        top = max(counts.values(), default=0)
        return [
            Bar(
                name=last_part(name), whole=name, count=count,
                chart=charts.bar(count, top, f"{name}: {count:,}"),
                address=self.links.letters(**{filtered_by: name}),
            )
            for name, count in list(counts.items())[:_TOP]
        ]  # fmt: skip


class OverviewPage(Page):
    """``/dead-letters``"""

    tab = "overview"

    async def get(self) -> None:
        """Show the overview; its numbers may be a few seconds old."""
        now, given = times.utc_now(), asked(self.request)
        known = await self.site.recall("overview", lambda store: look(store, now))
        losses = await self.site.consult("losses", losses_of)
        rows = group_rows(known.worst, now, owner_of=self.site.owner_of, mark=self.mark)
        view = Overview(
            known=known, losses=losses, links=self.links, rows=rows,
            arrivals=await self._arrivals(read_range(given, _USUAL_RANGE), now),
            done=what_was_done(given),
        )  # fmt: skip
        self.page("overview", view)

    async def _arrivals(self, wanted: Range, now: datetime) -> Arrivals:
        known = await self.site.recall(
            ("arrivals", wanted.name), lambda store: all_arrivals(store, wanted, now)
        )
        return Arrivals(
            known=known, range=wanted, links=self.links, address=self.links.page(),
            kept=self.site.kept_arrivals,
        )  # fmt: skip


def look(store: Store, now: datetime) -> Known:
    """Read the store; all answers come from stored counts and indexes."""
    needed = worklist(store, now, limit=_WORST)
    return Known(
        at=now,
        stats=store.monitoring.stats(now),
        keeping=store.reports.keeping(),
        marked=needed.marked,
        worst=known_groups(store, needed.groups, now),
        recent=store.letters.find(Filter(), limit=_TOP).letters,
        operations=store.operations.find(states=UNDER_WAY, limit=_TOP),
    )


def _rounded(number: float) -> str:
    return f"{number:,.0f}" if number >= 1 else "less than 1"


def _at_most(count: int, most: int) -> str:
    """``count``, which stopped at ``most``."""
    return f"{count}+" if count >= most else str(count)


def _between(youngest: float, oldest: float) -> dict[str, str]:
    """The filter for letters with an age between these, in seconds."""
    found = {}
    if oldest != float("inf"):
        found["since"] = f"{oldest:g}s"
    if youngest:
        found["until"] = f"{youngest:g}s"
    return found
