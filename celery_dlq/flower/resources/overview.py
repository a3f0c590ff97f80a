"""The overview: the numbers that matter, the groups that need a person, arrivals, running redrives, messages
of killed workers, and what is kept of closed letters. REST has its numbers apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from celery_dlq.flower import charts
from celery_dlq.flower.http.handler import Api, Page
from celery_dlq.flower.http.request import asked
from celery_dlq.flower.http.site import Links, Site
from celery_dlq.flower.resources.arrivals import arrivals_of, read_range
from celery_dlq.flower.resources.groups import GroupRow, group_rows, what_was_done
from celery_dlq.flower.resources.letters import Row, rows_of
from celery_dlq.flower.resources.operations import OperationRow
from celery_dlq.model.group import Mark
from celery_dlq.model.states import OPEN_STATES, State
from celery_dlq.model.worker import RecorderReport
from celery_dlq.store.base import Filter, Stats
from celery_dlq.store.keeping import Keeping
from celery_dlq.view import records, times
from celery_dlq.view.groups import MOST_MARKED, worklist
from celery_dlq.view.operations import UNDER_WAY
from celery_dlq.view.stats import (
    Fact,
    Losses,
    NamedPile,
    archive_facts,
    keeping_record,
    losses_of,
    lost_facts,
    lost_record,
    messages_of,
    named_ages,
    retention_facts,
    said_why,
)
from celery_dlq.view.text import given

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
class Bar:
    """A name and its count, as a bar that links to the letters."""

    name: str
    count: int
    #: The count of the longest bar beside it.
    top: int
    address: str

    @property
    def chart(self) -> str:
        """The bar."""
        return charts.bar(self.count, self.top, f"{self.name}: {self.count:,}")


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
class Overview:
    """The values of the page that the store has at one moment."""

    at: datetime
    links: Links
    stats: Stats
    keeping: Keeping
    #: How many groups have each mark.
    marked: Mapping[Mark, int]
    #: The worst groups, in the order in which they need a person.
    worst: Sequence[GroupRow]
    #: The newest letters.
    recent: Sequence[Row]
    #: The operations that are not finished.
    operations: Sequence[OperationRow]

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
    def numbers(self) -> list[Number]:
        """The numbers that matter beside the open letters; those of zero are left out, except arrivals."""
        running = len(self.operations)
        rest = [
            self._marked(Mark.REGRESSED),
            self._marked(Mark.NEW),
            Number(
                name="Held for a person",
                value=f"{self.stats.held:,}",
                address=self.links.letters(held="1"),
            ),
            Number(
                name="Redrives under way",
                value=_at_most(running, _TOP),
                address=self.links.page("operations"),
            ),
        ]
        return [self._arrived(), *(number for number in rest if number.value != "0")]

    def _marked(self, mark: Mark) -> Number:
        return Number(
            name=f"{mark.value.capitalize()} groups",
            value=_at_most(self.marked[mark], MOST_MARKED),
            address=self.links.page("groups", query=[("mark", mark.value)]),
            is_bad=mark is Mark.REGRESSED,
        )

    def _arrived(self) -> Number:
        arrivals, usual = self.stats.arrivals, self.stats.usual
        last = arrivals[-1] if arrivals else 0
        return Number(
            name="Arrived in the last hour",
            value=f"{last:,}",
            address=self.links.letters(since="1h"),
            remark="" if usual is None else f"usually {_rounded(usual)}",
            is_bad=usual is not None and last >= max(_UNUSUAL_LEAST, _UNUSUAL_TIMES * usual),
        )

    @property
    def breakdowns(self) -> list[tuple[str, str, list[Bar]]]:
        """The open letters by reason, exception, task and age: name, title, and bars. One bar alone says
        nothing, so it is left out."""
        stats = self.stats
        by_reason = {reason.value: count for reason, count in stats.by_reason.items()}
        found = [
            ("reasons", "Reasons", self._bars(by_reason, "reason")),
            ("exceptions", "Exceptions", self._bars(stats.by_exception, "exception")),
            ("tasks", "Tasks", self._bars(stats.by_task, "task")),
            ("ages", "Age since the last failure", self._ages()),
        ]
        return [one for one in found if len(one[2]) > 1]

    def _bars(self, counts: Mapping[str, int], filtered_by: str) -> list[Bar]:
        top = max(counts.values(), default=0)
        return [
            Bar(name=name, count=count, top=top, address=self.links.letters(**{filtered_by: name}))
            for name, count in list(counts.items())[:_TOP]
        ]

    def _ages(self) -> list[Bar]:
        """Open letters by the time since their last failure; empty ages are left out."""
        names, bounds = times.age_names(self.stats.ages), [0.0, *self.stats.ages]
        top = max(names.values(), default=0)
        return [
            Bar(name=name, count=count, top=top, address=self.links.letters(**_between(*ends)))
            for (name, count), ends in zip(names.items(), pairwise(bounds), strict=True)
            if count
        ]

    @property
    def kept_facts(self) -> list[Fact]:
        """The results of the last round of retention, and the contents of the archive."""
        found = self.keeping
        retention = [] if found.round is None else retention_facts(found.round, self.at)
        return given([*retention, *archive_facts(found)])

    @property
    def kept_ages(self) -> list[tuple[NamedPile, str]]:
        """Closed letters by the time since they were closed, each with its chart."""
        found = self.keeping.round
        named = [] if found is None else named_ages(found.kept.ages)
        top = max((one.pile.letters for one in named), default=0)
        return [
            (one, charts.bar(one.pile.letters, top, f"{one.name}: {one.pile.letters:,}"))
            for one in named
        ]


@dataclass(frozen=True, kw_only=True)
class LossesView:
    """Killed workers, and lost letters."""

    losses: Losses

    @property
    def facts(self) -> list[Fact]:
        """Lost letters, and messages that wait in the files of Flower's machine."""
        return given(lost_facts(self.losses))

    @property
    def reports(self) -> list[tuple[RecorderReport, str, str]]:
        """The reports of workers about killed workers and about messages without a copy: each report, its
        messages, and its cause."""
        shown = self.losses.lost.reports[:_MOST_REPORTS]
        return [(one, messages_of(one), said_why(one)) for one in shown]

    @property
    def more(self) -> int:
        """How many reports are not shown."""
        return max(0, len(self.losses.lost.reports) - _MOST_REPORTS)


class OverviewPage(Page):
    """``/dead-letters``"""

    tab = "overview"

    async def get(self) -> None:
        """Show the overview; its numbers may be a few seconds old."""
        now, given = times.utc_now(), asked(self.request)
        view = await self.site.recall("overview", lambda store: look(store, self.site, now))
        losses = LossesView(losses=await self.site.consult("losses", losses_of))
        wanted = read_range(given, _USUAL_RANGE)
        arrivals = await self.site.recall(
            ("arrivals", wanted.name), lambda store: arrivals_of(store, self.site, wanted, now)
        )
        done = what_was_done(given)
        self.page("overview", view, lost=losses, arrivals=arrivals, done=done)


class Statistics(Api):
    """``GET /api/dead-letters/stats``"""

    async def get(self) -> None:
        """Depth, arrivals and ages, at most ten seconds old."""
        self.asked()
        found = await self.site.recall(
            "stats", lambda store: store.monitoring.stats(times.utc_now())
        )
        self.reply(records.stats_record(found))


class Retention(Api):
    """``GET /api/dead-letters/retention``"""

    async def get(self) -> None:
        """The closed letters that are kept, and the contents of the archive; at most ten seconds old."""
        self.asked()
        found = await self.site.recall("keeping", lambda store: store.reports.keeping())
        self.reply(keeping_record(found, times.utc_now()))


class Recorder(Api):
    """``GET /api/dead-letters/recorder``"""

    async def get(self) -> None:
        """Lost letters, reports of workers, and the files of Flower's machine; at most ten seconds old."""
        self.asked()
        found = await self.site.consult("losses", losses_of)
        self.reply(lost_record(found))


def look(store: Store, site: Site, now: datetime) -> Overview:
    """Read the store; all answers come from stored counts and indexes."""
    needed = worklist(store, now, limit=_WORST)
    return Overview(
        at=now,
        links=site.links,
        stats=store.monitoring.stats(now),
        keeping=store.reports.keeping(),
        marked=needed.marked,
        worst=group_rows(store, site, needed.groups, now),
        recent=rows_of(store.letters.find(Filter(), limit=_TOP).letters),
        operations=[
            OperationRow(operation=one)
            for one in store.operations.find(states=UNDER_WAY, limit=_TOP)
        ],
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
