"""The screens of groups: failures by cause, with decisions about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from celery_dlq.cli.screens.letter import contents_of, ticket_table
from celery_dlq.cli.screens.operation import Command
from celery_dlq.cli.screens.parts import (
    Block,
    Column,
    Field,
    Part,
    Short,
    facts_of,
    last_name,
    table_of,
)
from celery_dlq.model.group import AliasReason, Group
from celery_dlq.model.handling import GroupTicket
from celery_dlq.view.groups import Grouping, ends_of, standing
from celery_dlq.view.text import first_line, sparkline
from celery_dlq.view.traceback import own_traceback

#: Arrivals per hour of each group.
Trends = Mapping[str, Sequence[int]]

_MERGED = {AliasReason.MERGED: "Merged", AliasReason.FOLDED: "Folded"}

#: The owner of the route with a name.
OwnerOf = Callable[[str], str]

#: Tickets and escalations of each group that has one.
Tickets = Mapping[str, Sequence[GroupTicket]]


def group_table(
    found: Sequence[Group], trends: Trends, tickets: Tickets, owner_of: OwnerOf, now: datetime
) -> Part:
    """A table of groups, or a sentence if there are none.

    :param trends: drawn next to the groups, unless empty.
    :param tickets: shown next to the groups, unless empty.
    :param owner_of: the owner of the route with this name.
    """
    if not found:
        return "No groups match."
    fields = _fields(trends, tickets, owner_of, now)
    if any(group.route for group in found):
        fields.append((Column("ROUTE", from_width=140), lambda group: group.route))
    return table_of(fields, found)


def _fields(trends: Trends, tickets: Tickets, owner_of: OwnerOf, now: datetime) -> list[Field]:
    fields: list[Field] = [
        (Column("GROUP", rigid=True, ids=True), lambda group: group.fingerprint),
        (Column("OPEN", right=True, rigid=True), lambda group: group.open_count),
        (Column("FAILURES", right=True, from_width=100), lambda group: group.total_count),
        (Column("TASK"), lambda group: last_name(group.task)),
        (Column("EXCEPTION"), lambda group: last_name(group.exception_type)),
        (Column("VERDICT", rigid=True), verdict_of),
        (Column("RULE", from_width=120), lambda group: group.rule),
        (Column("STATUS", rigid=True), lambda group: standing(group, now)),
        (Column("MESSAGE"), lambda group: Short(first_line(group.message), group.message)),
        (Column("OWNER", from_width=120), lambda group: group.owner or owner_of(group.route)),
        (Column("LAST SEEN", rigid=True, from_width=90), lambda group: group.last_seen_at),
    ]
    if tickets:
        fields.append((Column("TICKET", fold=True), lambda group: _tickets_of(group, tickets)))
    if trends:
        last_day = Column("LAST 24 H", rigid=True, from_width=140)
        fields.append((last_day, lambda group: sparkline(trends[group.fingerprint])))
    return fields


def verdict_of(group: Group) -> str:
    """The verdict on its newest letter; empty if it is unknown."""
    return group.verdict.value if group.verdict else ""


def _tickets_of(group: Group, tickets: Tickets) -> str:
    return ", ".join(ticket.url or ticket.to for ticket in tickets.get(group.fingerprint, ()))


def group_parts(
    group: Group,
    trend: Sequence[int],
    tickets: Sequence[GroupTicket],
    now: datetime,
    *,
    grouping: Grouping,
    route_owner: str,
    drawn: bool,
    command: Command,
) -> list[Part]:
    """The parts of a group's screen.

    :param route_owner: the owner of its route.
    """
    arrivals = sparkline(trend) if drawn else " ".join(map(str, trend))
    facts = facts_of(
        "Group",
        ("Id", group.fingerprint),
        ("Task", group.task),
        ("Exception", group.exception_type),
        ("Verdict", verdict_of(group)),
        ("Rule", group.rule),
        ("Grouped", grouping.grouped),
        *((_MERGED[one.why], one.in_words()) for one in grouping.merged),
        ("Status", standing(group, now) or group.status.value),
        ("Ends", ends_of(group)),
        ("Fixed in", group.resolved_in),
        ("Decided", group.status_at),
        ("By", group.status_by),
        ("Regressed", group.regressed_at),
        ("Owner", group.owner),
        ("Route", group.route),
        ("Owner of the route", route_owner),
        ("Open", group.open_count),
        ("Letters", group.letter_count),
        ("Failures", group.total_count),
        ("First seen", group.first_seen_at),
        ("Last seen", group.last_seen_at),
        ("Arrivals/h", arrivals),
    )
    newest = grouping.newest
    back = command("redrive", "--group", group.fingerprint, "--canary", "1")
    return [
        facts,
        ticket_table(tickets, "Tickets"),
        Block("Note", group.note),
        Block("Example", group.message),
        Block("Traceback of the newest letter", own_traceback(newest.traceback) if newest else ""),
        contents_of(newest, title="Arguments of the newest letter") if newest else "",
        f"See its letters: {command('list', '--group', group.fingerprint)}",
        f"Send them back: {back}" if group.open_count else "",
    ]


def _send_back(group: Group, command: Command) -> list[Part]:
    if not group.open_count:
        return []
    return [f"Send them back: {command('redrive', '--group', group.fingerprint, '--canary', '1')}"]
