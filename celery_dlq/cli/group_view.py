"""Groups as a person reads them: what fails, what was decided about it, what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from celery_dlq.cli.operation_view import Command
from celery_dlq.cli.render import Block, Column, Facts, Part, Short, Table
from celery_dlq.group import Group
from celery_dlq.view.groups import ends_of, standing
from celery_dlq.view.text import first_line, last_part, short_ids, sparkline

#: Arrivals of each group by the hour.
Trends = Mapping[str, Sequence[int]]

_COLUMNS = (
    Column("GROUP", rigid=True),
    Column("OPEN", right=True, rigid=True),
    Column("TOTAL", right=True, from_width=80),
    Column("TASK"),
    Column("EXCEPTION"),
    Column("STATUS", rigid=True),
    Column("MESSAGE"),
    Column("OWNER", from_width=120),
    Column("LAST SEEN", rigid=True),
    Column("FIRST SEEN", from_width=140),
)

_TREND = Column("LAST 24 H", rigid=True, from_width=140)


def group_table(found: Sequence[Group], trends: Trends, now: datetime) -> Part:
    """The table of groups, or a sentence when there are none.

    :param trends: drawn beside the groups; empty draws none.
    """
    if not found:
        return "No dead letters match."
    ids = short_ids([group.fingerprint for group in found])
    rows = [
        (
            Short(short, group.fingerprint),
            group.open_count,
            group.total_count,
            Short(last_part(group.task), group.task),
            Short(last_part(group.exception_type), group.exception_type),
            standing(group, now),
            Short(first_line(group.message), group.message),
            group.owner,
            group.last_seen_at,
            group.first_seen_at,
            *((sparkline(trends[group.fingerprint]),) if trends else ()),
        )
        for short, group in zip(ids, found, strict=True)
    ]
    return Table((*_COLUMNS, _TREND) if trends else _COLUMNS, rows)


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
            ("Cured in", group.resolved_in),
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
    return [facts, *blocks, f"Its letters: {command('list', '--group', group.fingerprint)}"]
