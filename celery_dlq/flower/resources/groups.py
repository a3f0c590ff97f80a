"""The list of groups, failures by cause; a group as a row of a table; and decisions about groups, from forms
and JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from celery_dlq.errors import FilterError, TriageError
from celery_dlq.flower.http.handler import ListHandler
from celery_dlq.flower.http.request import (
    NAMES,
    FilterForm,
    Given,
    check_names,
    first_value,
    limit_of,
    read_filter,
    single_value,
    whole_number,
    words_of,
)
from celery_dlq.flower.http.site import Site
from celery_dlq.model.group import (
    Annotate,
    Assign,
    Group,
    GroupAct,
    GroupMark,
    GroupStatus,
    Ignore,
    Mark,
    Merge,
    Reopen,
    Resolve,
    Split,
)
from celery_dlq.model.handling import GroupTicket
from celery_dlq.store.base import Filter, Rows
from celery_dlq.view import lookup, records, times
from celery_dlq.view.groups import GROUP_FILTERS, groups_with, standing
from celery_dlq.view.text import short_ids

if TYPE_CHECKING:
    from celery_dlq.store import Store

T = TypeVar("T")


@dataclass(frozen=True)
class Form:
    """One act: the names of its fields, and the act that is made of their texts."""

    names: tuple[str, ...]
    act: Callable[..., GroupAct]
    #: What to say when it is done.
    done: str
    #: Whether the fields are required; a missing note or owner would otherwise remove the stored one.
    needed: bool = False


class FieldError(TriageError):
    """The value of one field of a form is not valid."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(why)
        self.name = name


def _ignore(given: Given, now: datetime) -> Ignore:
    zone = _zone(first_value(given, "zone"))
    # A button or the field for words; a picker sends its moment as well, which is empty if it was not used.
    until = _read(given, "until", lambda text: times.parse_ahead(text, now, zone))
    at = _read(given, "at", lambda text: times.parse_ahead(text, now, zone))
    if until and at:
        raise FieldError("at", "Give one time: in words, or as a date.")
    return Ignore(
        until=until or at,
        rate=_read(given, "rate", times.parse_hourly),
        count=_read(given, "count", partial(whole_number, "count")),
    )


def _read(given: Given, name: str, read: Callable[[str], T]) -> T | None:
    text = first_value(given, name).strip()
    try:
        return read(text) if text else None
    except (ValueError, FilterError) as error:
        raise FieldError(name, str(error)) from error


def _zone(name: str) -> tzinfo:
    """The time zone of a browser; UTC if it sends none, or one that this machine does not know."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return timezone.utc


#: The forms by the name of the act.
ACTS: Mapping[str, Form] = {
    "ignore": Form(
        ("until", "rate", "count"),
        Ignore,
        "The group is ignored: the list leaves it out, and its letters are unchanged.",
    ),
    "resolve": Form(
        ("release",),
        Resolve,
        "The group is resolved. Its letters are still open; redrive or discard them.",
    ),
    "reopen": Form((), Reopen, "The group is open."),
    "note": Form(("note",), Annotate, "The note was saved.", needed=True),
    "merge": Form(
        ("into",), Merge, "The groups are merged. Letters of both are counted here.", needed=True
    ),
    "split": Form(("member",), Split, "The merge was undone."),
    "assign": Form(("owner",), Assign, "The owner was saved.", needed=True),
}


def read_act(name: str, given: Given, now: datetime) -> GroupAct:
    """The act of a form.

    :raises FieldError: the value of a field is invalid.
    """
    if name == "ignore":
        return _ignore(given, now)
    form = ACTS[name]
    return form.act(**{field: first_value(given, field).strip() for field in form.names})


def what_was_done(given: Given) -> str:
    """The sentence for a page that an act has led to; empty for any other page."""
    form = ACTS.get(first_value(given, "done"))
    return form.done if form else ""


def group_records(
    site: Site, store: Store, found: Sequence[Group], now: datetime
) -> list[dict[str, Any]]:
    """Groups as the REST API has them, with their tickets.

    :raises StoreError: the store failed.
    """
    tickets = store.tickets.of_groups([group.fingerprint for group in found])
    return [
        records.group_record(
            group, tickets.get(group.fingerprint, ()), now, route_owner=site.owner_of(group.route)
        )
        for group in found
    ]


def check_fields(act: str, given: Given) -> None:
    """Check the fields of an act in a JSON object.

    :raises FilterError: a field is unknown, missing, or is given more than once.
    """
    form = ACTS[act]
    check_names(given, form.names, "a field")
    for name in form.names:
        values = given.get(name, ())
        if len(values) > 1 or (form.needed and not values):
            only = (
                "must be given once." if form.needed else "is given more than once; give it once."
            )
            raise FilterError(f"{name} {only}")


#: Parameters that are not filters on letters.
_OTHERS = ("status", "mark", "owner", "after")


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """A group in a list."""

    group: Group
    short_id: str
    #: Its arrivals in the last day, by the hour.
    trend: Sequence[int]
    tickets: Sequence[GroupTicket]
    #: Its status or mark; empty if it is just open.
    standing: str
    #: The person or team that it is assigned to, else the owner of its route.
    owner: str


@dataclass(frozen=True, kw_only=True)
class GroupsView(FilterForm):
    """The values of the page."""

    #: If none matches, names in the filters that no letter has.
    near: Sequence[str] = ()

    names = (*NAMES, "status", "mark", "owner")
    statuses: ClassVar = tuple(status.value for status in GroupStatus)
    marks: ClassVar = tuple(mark.value for mark in Mark)


class Groups(ListHandler):
    """``/dead-letters/groups?task=…&status=…&mark=…&owner=…``, with the filters of ``dlq groups``, and the
    same in the REST API."""

    tab = template = "groups"
    view = GroupsView

    async def get(self) -> None:
        """The largest groups, or those after a cursor. As on the command line, ignored groups are listed only
        on request."""
        given, now = self.values(), times.utc_now()
        names, other = (GROUP_FILTERS, "limit") if self.is_api else (NAMES, "done")
        wanted, find = finder_of(given, now, others=(*_OTHERS, other), names=names)
        limit, after = limit_of(given), first_value(given, "after") or None
        if self.is_api:

            def look_up(store: Store) -> dict[str, Any]:
                found = find(store, after, limit)
                shown = group_records(self.site, store, found.rows, now)
                return {"groups": shown, "next": found.next}

            self.reply(await self.site.ask(look_up))
            return

        def look(store: Store) -> tuple[list[GroupRow], str | None]:
            found = find(store, after, limit)
            return group_rows(store, self.site, found.rows, now), found.next

        key = ("groups", *sorted((name, *found) for name, found in given.items() if name != "done"))
        rows, following = await self.site.recall(key, look)
        near: Sequence[str] = ()
        if not rows and not after:
            named = ("task", "exception", "route")
            near = await self.site.ask(lambda store: [*lookup.unknown_names(store, wanted, named)])
        view = GroupsView(given=given, rows=rows, next=following, near=near)
        self.page("groups", view, done=what_was_done(given))


def finder_of(
    given: Given, now: datetime, *, others: Sequence[str], names: Sequence[str]
) -> tuple[Filter, Callable[[Store, str | None, int], Rows[Group]]]:
    """The filter on letters; and a function that reads the requested groups: from a store, after a cursor, at
    most this many.

    :param others: names that are allowed, but are not filters on letters.
    :param names: the filters on letters that are allowed.
    :raises FilterError: a name or a value is invalid.
    """
    wanted = read_filter(given, now, others=others, names=names)
    statuses, marks = words_of(GroupStatus, "status", given), words_of(Mark, "mark", given)
    which = groups_with(statuses, marks, (single_value(given, "owner") or "").strip())

    def find(store: Store, after: str | None, limit: int) -> Rows[Group]:
        found = store.groups.find(wanted, now=now, limit=limit + 1, after=after, which=which)
        return Rows.first(found, limit, lambda group: GroupMark.of(group).cursor)

    return wanted, find


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
            standing=standing(group, now),
            owner=group.owner or site.owner_of(group.route),
        )
        for short, group in zip(short_ids(names), groups, strict=True)
    ]
