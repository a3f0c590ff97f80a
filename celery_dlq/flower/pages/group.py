"""One group: its trend, what was decided about it, and what can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from celery_dlq.flower import charts
from celery_dlq.flower.handler import Page
from celery_dlq.flower.pages.act import REPLAYED
from celery_dlq.flower.pages.letters import Row, rows_of
from celery_dlq.flower.problems import Refused
from celery_dlq.flower.request import asked, first, sent
from celery_dlq.flower.triage import ACTS, whole_group
from celery_dlq.group import Group, GroupStatus, hour_of
from celery_dlq.letter import DeadLetter
from celery_dlq.redact import clip
from celery_dlq.store.base import Filter, Store
from celery_dlq.view import times
from celery_dlq.view.groups import ends_of, standing

#: Hours of the trend, and letters that are shown.
_HOURS, _LETTERS = 7 * 24, 10

_DONE = {
    "ignore": "The group is ignored: it is left out of the list, and its letters are as before.",
    "resolve": "The group is resolved. Its letters still wait to be redriven or discarded.",
    "reopen": "The group is open.",
    "note": "The note is kept.",
    "assign": "The owner is kept.",
}


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the store knows of a group."""

    group: Group
    trend: Sequence[int]
    letters: Sequence[DeadLetter]


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """What the page shows."""

    known: Known
    now: datetime
    marks: Mapping[str, str]
    done: str = ""

    @property
    def group(self) -> Group:
        """The group."""
        return self.known.group

    @property
    def standing(self) -> str:
        """Its status or mark."""
        return standing(self.group, self.now) or self.group.status.value

    @property
    def ends(self) -> str:
        """What ends its being ignored."""
        return ends_of(self.group)

    @property
    def reopens(self) -> bool:
        """Whether there is anything to take back."""
        return self.group.status is not GroupStatus.OPEN or self.group.regressed_at is not None

    @property
    def chart(self) -> str:
        """The last week by the hour."""
        return charts.columns(self._bins(), "Arrivals in the last 7 days, by the hour")

    @property
    def days(self) -> list[str]:
        """What stands under the chart."""
        bins = self._bins()
        return [bins[0].label[:6], bins[len(bins) // 2].label[:6], "now"]

    @property
    def arrived(self) -> int:
        """Letters of the last week."""
        return sum(self.known.trend)

    @property
    def rows(self) -> list[Row]:
        """The newest open letters."""
        return rows_of(self.known.letters)

    def _bins(self) -> list[charts.Bin]:
        first_hour = hour_of(self.now) - timedelta(hours=len(self.known.trend) - 1)
        return [
            charts.Bin(f"{first_hour + timedelta(hours=place):%d %b %H:00} UTC", count)
            for place, count in enumerate(self.known.trend)
        ]


class GroupPage(Page):
    """``/dead-letters/groups/<fingerprint>``"""

    tab = "groups"

    async def get(self, beginning: str) -> None:
        """Show it; a beginning of its fingerprint leads to the whole."""
        now = times.utc_now()
        known = await self.site.ask(lambda store: look_up(store, beginning, now))
        fingerprint = known.group.fingerprint
        if fingerprint != beginning:
            self.redirect(self.links.group(fingerprint))
            return
        marks = {act: self.site.forms.mark(f"{act} {fingerprint}", self.actor) for act in ACTS}
        done = _DONE.get(first(asked(self.request), "done"), "")
        self.page("group", GroupView(known=known, now=now, marks=marks, done=done))


class GroupActPage(Page):
    """``POST /dead-letters/groups/<fingerprint>/<act>``"""

    tab = "groups"

    async def post(self, fingerprint: str, act: str) -> None:
        """Carry it out, once for each form."""
        if act not in ACTS:
            raise Refused(404, f"A group cannot be told to {clip(act, 40)}.")
        given, now, who = sent(self.request), times.utc_now(), self.actor
        meant = ACTS[act].read(given, now)
        if not self.site.forms.take(first(given, "mark"), f"{act} {fingerprint}", who):
            raise Refused(409, REPLAYED)
        await self.site.act(lambda queue: queue.store.triage(fingerprint, meant, who=who, now=now))
        self.see(f"{self.links.group(fingerprint)}?done={act}")


def look_up(store: Store, beginning: str, now: datetime) -> Known:
    """All that the page shows of a group.

    :raises UnknownGroup: there is none that begins like this.
    :raises AmbiguousId: there are several.
    """
    group = whole_group(store, beginning, now)
    name = group.fingerprint
    return Known(
        group=group,
        trend=store.group_trends([name], now=now, hours=_HOURS)[name],
        letters=store.find(Filter(group=name), limit=_LETTERS).letters,
    )
