"""The list of groups: failures by cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from celery_dlq.errors import FilterError
from celery_dlq.flower.filters import Given, read_filter
from celery_dlq.flower.html import charts
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.request import asked, first
from celery_dlq.model.group import Group, GroupFilter, GroupStatus, Mark
from celery_dlq.model.handling import GroupTicket
from celery_dlq.store.base import Filter
from celery_dlq.store.rows.group_mark import GroupMark
from celery_dlq.view import times
from celery_dlq.view.groups import ends_of, groups_with, standing
from celery_dlq.view.text import counted, short_ids

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Groups per page.
_LIMIT = 50

#: Parameters that are not filters on letters.
_OTHERS = ("status", "mark", "owner", "after")

_Word = TypeVar("_Word", GroupStatus, Mark)


@dataclass(frozen=True, kw_only=True)
class Known:
    """The store's data for the page."""

    #: One more than a page shows if there is a next page.
    groups: Sequence[Group]
    #: The arrivals of each in the last day.
    trends: Mapping[str, Sequence[int]]
    #: The tickets and escalations of those that have some.
    tickets: Mapping[str, Sequence[GroupTicket]]

    @property
    def has_next(self) -> bool:
        """Whether there is a next page."""
        return len(self.groups) > _LIMIT


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """A group in the list."""

    group: Group
    short_id: str
    trend: Sequence[int]
    tickets: Sequence[GroupTicket]
    now: datetime
    #: The person or team that it is assigned to, else the owner of its route.
    owner: str

    @property
    def standing(self) -> str:
        """Its status or mark; empty if it is just open."""
        return standing(self.group, self.now)

    @property
    def ends(self) -> str:
        """When it stops being ignored."""
        return ends_of(self.group)

    @property
    def chart(self) -> str:
        """Its arrivals in the last day, as a chart."""
        total = counted(sum(self.trend), "letter")
        return charts.sparkline(self.trend, f"{total} in the last 24 hours")


@dataclass(frozen=True, kw_only=True)
class GroupsView:
    """The values of the page."""

    given: Given
    rows: Sequence[GroupRow] = ()
    problem: str = ""
    #: The cursor of the next page.
    next: str = ""

    statuses: Sequence[str] = tuple(status.value for status in GroupStatus)
    marks: Sequence[str] = tuple(mark.value for mark in Mark)

    def value(self, name: str) -> str:
        """The value of a field."""
        return first(self.given, name)

    def has(self, name: str, value: str) -> bool:
        """Whether a choice is selected."""
        return value in self.given.get(name, ())

    @property
    def narrowed(self) -> bool:
        """Whether any filter is set."""
        return bool(self.pairs)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The filters that are set."""
        return [
            (name, value)
            for name, values in self.given.items()
            for value in values
            if name != "after" and value.strip()
        ]

    @property
    def later(self) -> bool:
        """Whether this is not the first page."""
        return bool(self.value("after"))


class GroupsPage(Page):
    """``/dead-letters/groups?task=…&status=…&mark=…&owner=…``, with the filters of ``dlq groups``."""

    tab = "groups"

    async def get(self) -> None:
        """Show the largest groups, or those after a cursor."""
        given: Given = {}
        try:
            given, now = asked(self.request), times.utc_now()
            wanted, which = read_wanted(given, now)
            key = ("groups", *sorted((name, *values) for name, values in given.items()))
            after = first(given, "after") or None
            known = await self.site.recall(
                key, lambda store: look(store, wanted, which, now, after)
            )
        except FilterError as error:
            self.page("groups", GroupsView(given=given, problem=str(error)), 400)
            return
        following = GroupMark.of(known.groups[_LIMIT - 1]).cursor if known.has_next else ""
        rows = _rows(known, self.site.owner_of, now)
        self.page("groups", GroupsView(given=given, rows=rows, next=following))


def read_wanted(given: Given, now: datetime) -> tuple[Filter, GroupFilter]:
    """The requested groups.

    :raises FilterError: a name or a value is invalid.
    """
    wanted = read_filter(given, now, others=_OTHERS)
    statuses = _words(given, "status", GroupStatus)
    owners = [owner.strip() for owner in given.get("owner", ()) if owner.strip()]
    if len(owners) > 1:
        raise FilterError("owner is given more than once; give it once.")
    owner = owners[0] if owners else ""
    return wanted, groups_with(statuses, _words(given, "mark", Mark), owner)


def look(
    store: Store, wanted: Filter, which: GroupFilter, now: datetime, after: str | None
) -> Known:
    """The store's data for a page."""
    found = store.groups.find(wanted, now=now, limit=_LIMIT + 1, after=after, which=which)
    names = [group.fingerprint for group in found]
    return Known(
        groups=found,
        trends=store.groups.trends(names, now=now),
        tickets=store.tickets.of_groups(names),
    )


def _rows(known: Known, owner_of: Callable[[str], str], now: datetime) -> list[GroupRow]:
    shown = known.groups[:_LIMIT]
    ids = short_ids([group.fingerprint for group in shown])
    return [
        GroupRow(
            group=group,
            short_id=short,
            trend=known.trends[group.fingerprint],
            tickets=known.tickets.get(group.fingerprint, ()),
            now=now,
            owner=group.owner or owner_of(group.route),
        )
        for short, group in zip(ids, shown, strict=True)
    ]


def _words(given: Given, name: str, kind: type[_Word]) -> frozenset[_Word]:
    try:
        return frozenset(kind(word) for word in given.get(name, ()) if word)
    except ValueError:
        known = ", ".join(item.value for item in kind)
        raise FilterError(f"{name} must be one of {known}.") from None
