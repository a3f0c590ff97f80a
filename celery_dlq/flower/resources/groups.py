"""The list of groups, failures by cause; a group as a row of a table; and decisions about groups, from forms
and JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.errors import FilterError, TriageError
from celery_dlq.flower import charts
from celery_dlq.flower.http.handler import Api, Page
from celery_dlq.flower.http.problems import Refused
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
    sent,
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
from celery_dlq.redact import clip
from celery_dlq.store.base import Filter
from celery_dlq.view import lookup, records, times
from celery_dlq.view.groups import GROUP_FILTERS, groups_with, standing
from celery_dlq.view.lookup import discreet
from celery_dlq.view.text import counted, short_ids

if TYPE_CHECKING:
    from celery_dlq.store import Store


@dataclass(frozen=True)
class Form:
    """One act: the names of its fields, and the function that reads them."""

    names: tuple[str, ...]
    read: Callable[[Given, datetime], GroupAct]
    #: What to say when it is done.
    done: str
    #: Whether the fields are required; a missing note or owner would otherwise remove the stored one.
    needed: bool = False


def _ignore(given: Given, now: datetime) -> Ignore:
    until, rate = first(given, "until").strip(), first(given, "rate").strip()
    try:
        return Ignore(
            until=times.parse_ahead(until, now) if until else None,
            rate=times.parse_hourly(rate) if rate else None,
            count=_number(first(given, "count").strip()),
        )
    except ValueError as error:
        raise TriageError(str(error)) from error


def _number(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise TriageError(f"count must be a whole number above zero, not {text[:40]!r}.")
    return int(text)


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


class DecisionPage(Page):
    """``POST /dead-letters/groups/<fingerprint>/<act>``"""

    tab = "groups"

    async def post(self, fingerprint: str, act: str) -> None:
        """Run the act, once per form."""
        if act not in ACTS:
            raise Refused(404, f"{clip(act, 40)} is not an act on groups.")
        given, now, who = sent(self.request), times.utc_now(), self.actor
        meant = ACTS[act].read(given, now)
        self.take_mark(given, f"{act} {fingerprint}")
        # By the store's clock, as the times of decisions are.
        made_at = now - timedelta(seconds=self.site.forms.age_s(first(given, "mark")))

        def carry_out(queue: DeadLetterQueue) -> None:
            _check_undecided(queue.store, fingerprint, who, made_at, now)
            queue.store.groups.triage(fingerprint, meant, who=who, now=now)
            queue.move_letters(meant)

        await self.site.act(carry_out)
        self.see(self._back(given, fingerprint, act))

    def _back(self, given: Given, fingerprint: str, act: str) -> str:
        """The address of the page with the form: that of the group, or a list with the group's row."""
        done, back = ("done", act), first(given, "back")
        if back == "overview":
            return self.links.page(query=[done])
        if back == "groups":
            return self.links.page("groups", query=[*parse_qsl(first(given, "query")), done])
        return f"{self.links.group(fingerprint)}?done={act}"


class Decision(Api):
    """``POST /api/dead-letters/groups/{fingerprint}/<act>`` with a JSON object of the act's fields."""

    async def post(self, prefix: str) -> None:
        """Run the act."""
        given, now, who = sent_json(self.request), times.utc_now(), self.actor
        meant = _read_decision(ACTS[self.act], given, now)

        def carry_out(queue: DeadLetterQueue) -> list[dict[str, Any]]:
            store = discreet(queue.store, queue.redactor)
            name = lookup.group(store, prefix, now).fingerprint
            store.groups.triage(name, meant, who=who, now=now)
            queue.move_letters(meant)
            return group_records(self.site, store, [lookup.group(store, name, now)], now)

        [changed] = await self.site.act(carry_out)
        self.reply(changed)


def _check_undecided(
    store: Store, fingerprint: str, who: str, since: datetime, now: datetime
) -> None:
    """Check that no other person has decided about the group since a form was made.

    :raises Refused: someone has.
    """
    group = store.groups.get(fingerprint, now=now)
    if group is None or group.status_at is None or group.status_by == who:
        return
    # The age of a form is up to a second too much.
    if group.status_at >= since + timedelta(seconds=1):
        ago = times.age(group.status_at, now)
        raise Refused(
            409,
            f"{clip(group.status_by, 60)} decided about this group {ago}: it is {group.status.value} now. "
            "Nothing was changed; look at it again.",
        )


def group_records(
    site: Site, store: Store, found: Sequence[Group], now: datetime
) -> list[dict[str, Any]]:
    """Groups as the REST API has them, with their tickets.

    :raises StoreError: the store failed.
    """
    tickets = store.tickets.of_groups([group.fingerprint for group in found])
    return [
        records.ticketed_group_record(
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

#: How long a row offers to ignore a group, as the form of its page reads it.
IGNORING = (("1d", "for a day"), ("7d", "for a week"), ("", "until it is reopened"))


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
