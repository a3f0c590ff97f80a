"""The list of groups: failures by cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode

from celery_dlq.errors import FilterError
from celery_dlq.flower.filters import Given, read_filter
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.request import asked, first
from celery_dlq.flower.pages.groups.rows import GroupRow, KnownGroups, group_rows, known_groups
from celery_dlq.flower.triage import what_was_done
from celery_dlq.model.group import Group, GroupFilter, GroupStatus, Mark
from celery_dlq.store.base import Filter
from celery_dlq.store.rows.group_mark import GroupMark
from celery_dlq.view import times
from celery_dlq.view.groups import groups_with

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Groups per page.
_LIMIT = 50

#: Parameters that are not filters on letters.
_OTHERS = ("status", "mark", "owner", "after", "done")

_Word = TypeVar("_Word", GroupStatus, Mark)


@dataclass(frozen=True, kw_only=True)
class GroupsView:
    """The values of the page."""

    given: Given
    rows: Sequence[GroupRow] = ()
    problem: str = ""
    #: The cursor of the next page.
    next: str = ""
    #: What an act on a row has done.
    done: str = ""

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
            if name not in ("after", "done") and value.strip()
        ]

    @property
    def query(self) -> str:
        """The filters as a query, for the forms in the rows."""
        return urlencode(self.pairs)

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
            key = ("groups", *sorted((n, *v) for n, v in given.items() if n != "done"))
            after = first(given, "after") or None
            known = await self.site.recall(
                key, lambda store: look(store, wanted, which, now, after)
            )
        except FilterError as error:
            self.page("groups", GroupsView(given=given, problem=str(error)), 400)
            return
        shown = known.groups[:_LIMIT]
        following = GroupMark.of(shown[-1]).cursor if len(known.groups) > _LIMIT else ""
        rows = group_rows(
            replace(known, groups=shown), now, owner_of=self.site.owner_of, mark=self.mark
        )
        view = GroupsView(given=given, rows=rows, next=following, done=what_was_done(given))
        self.page("groups", view)


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
) -> KnownGroups:
    """The store's data for a page, and for one more group if there is a next page."""
    return known_groups(store, find_groups(store, wanted, which, now, after, _LIMIT + 1), now)


def find_groups(
    store: Store,
    wanted: Filter,
    which: GroupFilter,
    now: datetime,
    after: str | None,
    limit: int,
) -> list[Group]:
    """At most ``limit`` groups after a cursor."""
    return store.groups.find(wanted, now=now, limit=limit, after=after, which=which)


def _words(given: Given, name: str, kind: type[_Word]) -> frozenset[_Word]:
    try:
        return frozenset(kind(word) for word in given.get(name, ()) if word)
    except ValueError:
        known = ", ".join(item.value for item in kind)
        raise FilterError(f"{name} must be one of {known}.") from None
