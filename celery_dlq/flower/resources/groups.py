"""The list of groups, failures by cause, and a group as a row of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from celery_dlq.errors import FilterError
from celery_dlq.flower.html import charts
from celery_dlq.flower.http.filters import FilterForm, read_filter
from celery_dlq.flower.http.handler import Api, Page
from celery_dlq.flower.http.request import Given, asked, first, limit_of, words_of
from celery_dlq.flower.http.site import Site
from celery_dlq.flower.resources.group_decisions import group_records, what_was_done
from celery_dlq.model.group import Group, GroupFilter, GroupMark, GroupStatus, Mark
from celery_dlq.model.handling import GroupTicket
from celery_dlq.store.base import Filter
from celery_dlq.view import times
from celery_dlq.view.groups import GROUP_FILTERS, groups_with, standing
from celery_dlq.view.text import counted, short_ids

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Groups per page.
_LIMIT = 50

#: Parameters that are not filters on letters.
_OTHERS = ("status", "mark", "owner", "after", "done")

#: How long a row offers to ignore a group, as the form of its page reads it.
IGNORING = (("1d", "for a day"), ("7d", "for a week"), ("", "until it is reopened"))

_Word = TypeVar("_Word", GroupStatus, Mark)


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """A group in a list."""

    group: Group
    short_id: str
    trend: Sequence[int]
    tickets: Sequence[GroupTicket]
    now: datetime
    #: The person or team that it is assigned to, else the owner of its route.
    owner: str
    #: The choices of the form that ignores the group: value and label.
    ignoring: Sequence[tuple[str, str]] = IGNORING

    @property
    def standing(self) -> str:
        """Its status or mark; empty if it is just open."""
        return standing(self.group, self.now)

    @property
    def arrived(self) -> int:
        """The letters that arrived in the last day."""
        return sum(self.trend)

    @property
    def chart(self) -> str:
        """Its arrivals in the last day, as a chart."""
        total = counted(self.arrived, "letter")
        return charts.sparkline(self.trend, f"{total} in the last 24 hours")


@dataclass(frozen=True, kw_only=True)
class GroupsView(FilterForm):
    """The values of the page."""

    rows: Sequence[GroupRow] = ()
    #: What an act on a row has done.
    done: str = ""

    statuses: Sequence[str] = tuple(status.value for status in GroupStatus)
    marks: Sequence[str] = tuple(mark.value for mark in Mark)


class GroupsPage(Page):
    """``/dead-letters/groups?task=…&status=…&mark=…&owner=…``, with the filters of ``dlq groups``."""

    tab = "groups"

    async def get(self) -> None:
        """Show the largest groups, or those after a cursor."""
        given: Given = {}
        try:
            given, now = asked(self.request), times.utc_now()
            wanted, which = read_wanted(given, now)
            key = ("groups", *sorted((n, *v) for n, v in given.items() if n != "done"))
            after = first(given, "after") or None
            found, rows = await self.site.recall(
                key, lambda store: look(store, self.site, wanted, which, now, after)
            )
        except FilterError as error:
            view = GroupsView(given=given, problem=str(error), pairs=_set_in(given))
            self.page("groups", view, 400)
            return
        view = GroupsView(
            given=given,
            pairs=_set_in(given),
            rows=rows,
            next=GroupMark.of(found[_LIMIT - 1]).cursor if len(found) > _LIMIT else "",
            done=what_was_done(given),
        )
        self.page("groups", view)


class Groups(Api):
    """``GET /api/dead-letters/groups``"""

    async def get(self) -> None:
        """A page of groups, most open letters first. As on the command line, ignored groups are listed only
        on request."""
        given, now = asked(self.request), times.utc_now()
        wanted = read_filter(
            given, now, others=("limit", "after", "status", "mark", "owner"), names=GROUP_FILTERS
        )
        statuses, marks = words_of(GroupStatus, "status", given), words_of(Mark, "mark", given)
        which = groups_with(statuses, marks, first(given, "owner"))
        limit, after = limit_of(given), first(given, "after") or None

        def look(store: Store) -> tuple[list[Group], list[dict[str, Any]]]:
            found = store.groups.find(wanted, now=now, limit=limit + 1, after=after, which=which)
            return found, group_records(self.site, store, found[:limit], now)

        found, shown = await self.site.ask(look)
        following = GroupMark.of(found[limit - 1]).cursor if len(found) > limit else None
        self.reply({"groups": shown, "next": following})


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
    store: Store, site: Site, wanted: Filter, which: GroupFilter, now: datetime, after: str | None
) -> tuple[list[Group], list[GroupRow]]:
    """The groups of a page, and one more if there is a next page; and the rows of the page."""
    found = store.groups.find(wanted, now=now, limit=_LIMIT + 1, after=after, which=which)
    return found, group_rows(store, site, found[:_LIMIT], now)


def group_rows(store: Store, site: Site, groups: Sequence[Group], now: datetime) -> list[GroupRow]:
    """Groups as rows of a table, with everything that the rows show."""
    names = [group.fingerprint for group in groups]
    trends, tickets = store.groups.trends(names, now=now), store.tickets.of_groups(names)
    return [
        GroupRow(
            group=group,
            short_id=short,
            trend=trends[group.fingerprint],
            tickets=tickets.get(group.fingerprint, ()),
            now=now,
            owner=group.owner or site.owner_of(group.route),
        )
        for short, group in zip(short_ids(names), groups, strict=True)
    ]


def _set_in(given: Given) -> list[tuple[str, str]]:
    """The filters that are set."""
    return [
        (name, value)
        for name, values in given.items()
        for value in values
        if name not in ("after", "done") and value.strip()
    ]


def _words(given: Given, name: str, kind: type[_Word]) -> frozenset[_Word]:
    try:
        return frozenset(kind(word) for word in given.get(name, ()) if word)
    except ValueError:
        known = ", ".join(item.value for item in kind)
        raise FilterError(f"{name} must be one of {known}.") from None
