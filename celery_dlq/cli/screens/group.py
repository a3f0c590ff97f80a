"""The screens of groups: failures by cause, with decisions about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from celery_dlq.cli.screens.operation import Command
from celery_dlq.cli.screens.render import (
    Block,
    Column,
    Facts,
    Field,
    Part,
    Short,
    last_name,
    table_of,
)
from celery_dlq.model.group import Group
from celery_dlq.view.groups import ends_of, standing
from celery_dlq.view.text import first_line, sparkline

#: Arrivals per hour of each group.
Trends = Mapping[str, Sequence[int]]


def group_table(found: Sequence[Group], trends: Trends, now: datetime) -> Part:
    """A table of groups, or a sentence if there are none.

    :param trends: drawn next to the groups, unless empty.
    """
    return table_of(_fields(trends, now), found) if found else "No groups match."


def _fields(trends: Trends, now: datetime) -> list[Field]:
    fields: list[Field] = [
        (Column("GROUP", rigid=True, ids=True), lambda group: group.fingerprint),
        (Column("OPEN", right=True, rigid=True), lambda group: group.open_count),
        (Column("TOTAL", right=True, from_width=80), lambda group: group.total_count),
        (Column("TASK"), lambda group: last_name(group.task)),
        (Column("EXCEPTION"), lambda group: last_name(group.exception_type)),
        (Column("STATUS", rigid=True), lambda group: standing(group, now)),
        (Column("MESSAGE"), lambda group: Short(first_line(group.message), group.message)),
        (Column("OWNER", from_width=120), lambda group: group.owner),
        (Column("LAST SEEN", rigid=True), lambda group: group.last_seen_at),
        (Column("FIRST SEEN", from_width=140), lambda group: group.first_seen_at),
    ]
    if trends:
        last_day = Column("LAST 24 H", rigid=True, from_width=140)
        fields.append((last_day, lambda group: sparkline(trends[group.fingerprint])))
    return fields


def group_parts(
    group: Group, trend: Sequence[int], now: datetime, *, drawn: bool, command: Command
) -> list[Part]:
    """The parts of a group's screen."""
    arrivals = sparkline(trend) if drawn else " ".join(map(str, trend))
    facts = Facts(
        "Group",
        [
            ("Id", group.fingerprint),
            ("Task", group.task),
            ("Exception", group.exception_type),
            ("Status", standing(group, now) or group.status.value),
            ("Ends", ends_of(group)),
            ("Fixed in", group.resolved_in),
            ("Decided", group.status_at),
            ("By", group.status_by),
            ("Regressed", group.regressed_at),
            ("Owner", group.owner),
            ("Open", group.open_count),
            ("Letters", group.total_count),
            ("First seen", group.first_seen_at),
            ("Last seen", group.last_seen_at),
            ("Arrivals/h", arrivals),
        ],
    )
    texts = [("Note", group.note), ("Example", group.message)]
    blocks = [Block(title, text) for title, text in texts if text]
    return [facts, *blocks, f"See its letters: {command('list', '--group', group.fingerprint)}"]
