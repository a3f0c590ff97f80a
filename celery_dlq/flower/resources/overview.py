"""The overview: the numbers that matter, the groups that need a person, arrivals, running redrives, messages
of killed workers, and what is kept of closed letters. REST has its numbers apart. And the exception types
about which no rule decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from celery_dlq.flower.http.handler import Handler
from celery_dlq.flower.http.site import Links, Site
from celery_dlq.flower.resources.arrivals import arrivals_of, read_range
from celery_dlq.flower.resources.groups import GroupRow, group_rows, what_was_done
from celery_dlq.model.group import Mark
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import OPEN_STATES, State
from celery_dlq.store.base import Filter, Operation, Stats
from celery_dlq.store.keeping import Keeping
from celery_dlq.view import records, times
from celery_dlq.view import stats as reports
from celery_dlq.view.groups import MOST_MARKED, worklist
from celery_dlq.view.operations import UNDER_WAY
from celery_dlq.view.stats import CAUTION, settings_of, unknown_types
from celery_dlq.view.text import given

if TYPE_CHECKING:
    from celery_dlq.api.queue import DeadLetterQueue
    from celery_dlq.store import Store

#: Rows per list, and reports of workers.
_TOP, _MOST_REPORTS = 8, 20

#: Groups in the worklist.
_WORST = 10

#: The range of the chart unless another one is asked for.
_USUAL_RANGE = "24h"

#: A rate of arrivals counts as unusual from this many times the usual rate, and this many letters in an hour.
_UNUSUAL_TIMES, _UNUSUAL_LEAST = 3, 5

#: Bars, each with a name, its count, and the address of its letters.
Bars = Sequence[tuple[str, int, str]]


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
    recent: Sequence[DeadLetter]
    #: The operations that are not finished.
    operations: Sequence[Operation]

    @property
    def open(self) -> list[tuple[State, int]]:
        """The open states, and the counts of their letters."""
        counts = self.stats.by_state
        return [(state, counts.get(state, 0)) for state in State if state in OPEN_STATES]

    @property
    def numbers(self) -> list[Number]:
        """The numbers that matter beside the open letters; those of zero are left out, except arrivals."""
        links, arrivals, usual = self.links, self.stats.arrivals, self.stats.usual
        last = arrivals[-1] if arrivals else 0
        arrived = Number(
            name="Arrived in the last hour", value=f"{last:,}", address=links.letters(since="1h"),
            remark="" if usual is None else f"usually {_rounded(usual)}",
            is_bad=usual is not None and last >= max(_UNUSUAL_LEAST, _UNUSUAL_TIMES * usual),
        )  # fmt: skip
        running = _at_most(len(self.operations), _TOP)
        rest = [
            *map(self._marked, (Mark.REGRESSED, Mark.NEW)),
            Number(
                name="Held for a person", value=f"{self.stats.held:,}", address=links.letters(held="1")
            ),
            Number(name="Redrives under way", value=running, address=links.page("operations")),
        ]  # fmt: skip
        return [arrived, *(number for number in rest if number.value != "0")]

    def _marked(self, mark: Mark) -> Number:
        return Number(
            name=f"{mark.value.capitalize()} groups",
            value=_at_most(self.marked[mark], MOST_MARKED),
            address=self.links.page("groups", query=[("mark", mark.value)]),
            is_bad=mark is Mark.REGRESSED,
        )

    @property
    def breakdowns(self) -> list[tuple[str, str, Bars]]:
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

    def _bars(self, counts: Mapping[str, int], filtered_by: str) -> Bars:
        return [
            (name, count, self.links.letters(**{filtered_by: name}))
            for name, count in [*counts.items()][:_TOP]
        ]

    def _ages(self) -> Bars:
        """Open letters by the time since their last failure; empty ages are left out."""
        names, bounds = times.age_names(self.stats.ages), [0.0, *self.stats.ages]
        return [
            (name, count, self.links.letters(**_between(*ends)))
            for (name, count), ends in zip(names.items(), pairwise(bounds), strict=True)
            if count
        ]

    @property
    def kept_facts(self) -> list[reports.Fact]:
        """The results of the last round of retention, and the contents of the archive."""
        found = self.keeping
        retention = [] if found.round is None else reports.retention_facts(found.round, self.at)
        return given([*retention, *reports.archive_facts(found)])


class OverviewPage(Handler):
    """``/dead-letters``"""

    tab = "overview"

    async def get(self) -> None:
        """Show the overview; its numbers may be a few seconds old."""
        now, values = times.utc_now(), self.values()
        view = await self.site.recall("overview", lambda store: look(store, self.site, now))
        losses = await self.site.consult(reports.losses_of, "losses")
        wanted = read_range(values, _USUAL_RANGE)
        arrivals = await self.site.recall(
            ("arrivals", wanted.name), lambda store: arrivals_of(store, self.site, wanted, now)
        )
        kept = view.keeping.round
        self.page(
            "overview", view, arrivals=arrivals, done=what_was_done(values),
            ages=[] if kept is None else reports.named_ages(kept.kept.ages),
            lost=given(reports.lost_facts(losses)), reports=losses.lost.reports, most=_MOST_REPORTS,
        )  # fmt: skip


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
        recent=store.letters.find(Filter(), limit=_TOP).letters,
        operations=store.operations.find(states=UNDER_WAY, limit=_TOP),
    )


#: The numbers of the REST API, each by its name in the address: depth, arrivals and ages; the closed letters
#: that are kept, and the contents of the archive; and lost letters, reports of workers, and the files of
#: Flower's machine.
NUMBERS: Mapping[str, Callable[[DeadLetterQueue], dict[str, Any]]] = {
    "stats": lambda queue: records.stats_record(queue.store.monitoring.stats(times.utc_now())),
    "retention": lambda queue: reports.keeping_record(
        queue.store.reports.keeping(), times.utc_now()
    ),
    "recorder": lambda queue: reports.lost_record(reports.losses_of(queue)),
}


class Numbers(Handler):
    """``GET /api/dead-letters/stats``, and other numbers."""

    async def get(self) -> None:
        """The numbers; at most ten seconds old."""
        self.known_values()
        self.reply(await self.site.consult(NUMBERS[self.act], ("numbers", self.act)))


class UnknownPage(Handler):
    """``/dead-letters/unknown-exceptions``"""

    tab = "groups"

    async def get(self) -> None:
        """Show the exception types about which no rule decides, at most ten seconds old."""
        self.known_values()
        types = await self.site.recall("unknown exceptions", unknown_types)
        self.page("unknown", types, settings=settings_of(types), caution=CAUTION)


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
