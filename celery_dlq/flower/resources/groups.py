"""The list of groups, failures by cause; a group as a row of a table; and decisions about groups, from forms
and JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo
from typing import TYPE_CHECKING, Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.errors import FilterError, TriageError
from celery_dlq.flower import charts
from celery_dlq.flower.http.handler import Api, Page
from celery_dlq.flower.http.request import (
    NAMES,
    FilterForm,
    Given,
    asked,
    check_names,
    first,
    limit_of,
    one,
    read_filter,
    sent_json,
    words_of,
)
from celery_dlq.flower.http.site import Site
from celery_dlq.model.group import (
    Annotate,
    Assign,
    Group,
    GroupAct,
    GroupFilter,
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
from celery_dlq.store.base import Filter
from celery_dlq.view import lookup, records, times
from celery_dlq.view.groups import GROUP_FILTERS, groups_with, standing
from celery_dlq.view.lookup import redacting
from celery_dlq.view.text import counted, short_ids

if TYPE_CHECKING:
    from celery_dlq.store import Store

T = TypeVar("T")


@dataclass(frozen=True)
class Form:
    """One act: the names of its fields, and the function that reads them."""

    names: tuple[str, ...]
    read: Callable[[Given, datetime], GroupAct]
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
    zone = _zone(first(given, "zone"))
    # A button or the field for words; a picker sends its moment as well, which is empty if it was not used.
    until = _read(given, "until", lambda text: times.parse_ahead(text, now, zone))
    at = _read(given, "at", lambda text: times.parse_ahead(text, now, zone))
    if until and at:
        raise FieldError("at", "Give one time: in words, or as a date.")
    return Ignore(
        until=until or at,
        rate=_read(given, "rate", times.parse_hourly),
        count=_read(given, "count", _number),
    )


def _read(given: Given, name: str, read: Callable[[str], T]) -> T | None:
    text = first(given, name).strip()
    try:
        return read(text) if text else None
    except ValueError as error:
        raise FieldError(name, str(error)) from error


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise ValueError(f"count must be a whole number above zero, not {text[:40]!r}.")
    return int(text)


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
        _ignore,
        "The group is ignored: the list leaves it out, and its letters are unchanged.",
    ),
    "resolve": Form(
        ("release",),
        lambda given, _now: Resolve(release=first(given, "release").strip()),
        "The group is resolved. Its letters are still open; redrive or discard them.",
    ),
    "reopen": Form((), lambda _given, _now: Reopen(), "The group is open."),
    "note": Form(
        ("note",),
        lambda given, _now: Annotate(note=first(given, "note").strip()),
        "The note was saved.",
        needed=True,
    ),
    "merge": Form(
        ("into",),
        lambda given, _now: Merge(into=first(given, "into").strip()),
        "The groups are merged. Letters of both are counted here.",
        needed=True,
    ),
    "split": Form(
        ("member",),
        lambda given, _now: Split(member=first(given, "member").strip()),
        "The merge was undone.",
    ),
    "assign": Form(
        ("owner",),
        lambda given, _now: Assign(owner=first(given, "owner").strip()),
        "The owner was saved.",
        needed=True,
    ),
}


def what_was_done(given: Given) -> str:
    """The sentence for a page that an act has led to; empty for any other page."""
    form = ACTS.get(first(given, "done"))
    return form.done if form else ""


class Decision(Api):
    """``POST /api/dead-letters/groups/{fingerprint}/<act>`` with a JSON object of the act's fields."""

    async def post(self, prefix: str) -> None:
        """Run the act."""
        given, now, who = sent_json(self.request), times.utc_now(), self.actor
        meant = _read_decision(ACTS[self.act], given, now)

        def carry_out(queue: DeadLetterQueue) -> list[dict[str, Any]]:
            store = redacting(queue.store, queue.redactor)
            name = lookup.group(store, prefix, now).fingerprint
            queue.groups.decide(name, meant, who=who, now=now)
            return group_records(self.site, store, [lookup.group(store, name, now)], now)

        [changed] = await self.site.act(carry_out)
        self.reply(changed)


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


def _read_decision(form: Form, given: Given, now: datetime) -> GroupAct:
    check_names(given, form.names)
    for name in form.names:
        values = given.get(name, ())
        if len(values) > 1 or (form.needed and not values):
            raise FilterError(
                f"{name} must be given once."
                if form.needed
                else f"{name} is given more than once; give it once."
            )
    return form.read(given, now)


#: Groups per page.
_LIMIT = 50

#: Parameters that are not filters on letters.
_OTHERS = ("status", "mark", "owner", "after")
_OF_PAGE = (*_OTHERS, "done")

#: How long a button offers to ignore a group, as the form of its page reads it.
IGNORING = (
    ("tomorrow", "until tomorrow"),
    ("monday", "until Monday"),
    ("7d", "for a week"),
    ("", "until it is reopened"),
)


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
    #: If none matches, names in the filters that no letter has.
    near: Sequence[str] = ()

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
        near: Sequence[str] = ()
        if not rows and not after:
            named = ("task", "exception", "route")
            near = await self.site.ask(lambda store: [*lookup.unknown_names(store, wanted, named)])
        view = GroupsView(
            given=given,
            pairs=_set_in(given),
            rows=rows,
            near=near,
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
        wanted, which = read_wanted(given, now, others=("limit", *_OTHERS), names=GROUP_FILTERS)
        limit, after = limit_of(given), first(given, "after") or None

        def look(store: Store) -> tuple[list[Group], list[dict[str, Any]]]:
            found = store.groups.find(wanted, now=now, limit=limit + 1, after=after, which=which)
            return found, group_records(self.site, store, found[:limit], now)

        found, shown = await self.site.ask(look)
        following = GroupMark.of(found[limit - 1]).cursor if len(found) > limit else None
        self.reply({"groups": shown, "next": following})


def read_wanted(
    given: Given, now: datetime, *, others: Sequence[str] = _OF_PAGE, names: Sequence[str] = NAMES
) -> tuple[Filter, GroupFilter]:
    """The requested groups.

    :param others: names that are allowed, but are not filters on letters.
    :param names: the filters on letters that are allowed.
    :raises FilterError: a name or a value is invalid.
    """
    wanted = read_filter(given, now, others=others, names=names)
    statuses, marks = words_of(GroupStatus, "status", given), words_of(Mark, "mark", given)
    return wanted, groups_with(statuses, marks, (one(given, "owner") or "").strip())


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
