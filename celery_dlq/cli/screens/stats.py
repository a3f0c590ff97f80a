"""The screens of numbers: ``dlq stats``, and the overview of ``dlq`` without a command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from celery_dlq.cli.screens.group import OwnerOf, group_table
from celery_dlq.cli.screens.operation import Command, operation_table
from celery_dlq.cli.screens.parts import Column, Facts, Field, Part, Table, facts_of, table_of
from celery_dlq.store.base import Operation, Stats
from celery_dlq.store.keeping import Keeping
from celery_dlq.view.groups import MOST_MARKED, Worklist
from celery_dlq.view.stats import (
    Losses,
    archive_facts,
    lost_facts,
    named_ages,
    retention_facts,
    said_why,
)
from celery_dlq.view.text import bar, byte_size, counted, sparkline
from celery_dlq.view.times import age_names

_BAR_WIDTH = 30

#: Rows of a table of counts on a terminal; the others are added up in one row.
_TOP = 15

_AGE_COLUMNS = (
    Column("SINCE CLOSED"),
    Column("LETTERS", right=True, rigid=True),
    Column("SIZE", right=True, rigid=True),
)

_REPORT_FIELDS: Sequence[Field] = (
    (Column("WORKER"), lambda report: report.worker),
    (Column("HOST"), lambda report: report.host),
    (Column("STATE", rigid=True), lambda report: report.kind.value),
    (Column("MESSAGES", right=True, rigid=True), lambda report: report.messages or None),
    (Column("SINCE", rigid=True), lambda report: report.since),
    (Column("SEEN", rigid=True, from_width=100), lambda report: report.seen_at),
    (Column("WHY", fold=True), said_why),
)


def glance(found: Stats, *, drawn: bool) -> Facts:
    """Depth, oldest letter, states and arrivals."""
    arrivals = sparkline(found.arrivals) if drawn else " ".join(map(str, found.arrivals))
    states = (f"{count:,} {state.value}" for state, count in found.by_state.items() if count)
    last_day = f"{sum(found.arrivals):,}, {found.arrivals[-1]:,} of them in the last hour"
    return facts_of(
        "At a glance",
        ("Depth", counted(found.depth, "open letter")),
        ("Oldest", found.oldest_open_at),
        ("States", ", ".join(states)),
        ("Arrivals/h", arrivals),
        ("Last 24 h", last_day),
    )


def stats_parts(found: Stats, *, drawn: bool) -> list[Part]:
    """The parts of the screen.

    :param drawn: whether bars may be drawn.
    """
    by_reason = {reason.value: count for reason, count in found.by_reason.items()}
    tables = [
        _count_table("TASK", found.by_task, drawn=drawn),
        _count_table("EXCEPTION", found.by_exception, drawn=drawn),
        _count_table("REASON", by_reason, drawn=drawn),
        _count_table("AGE", age_names(found.ages), drawn=drawn),
    ]
    return [glance(found, drawn=drawn), *(table for table in tables if table.rows and found.depth)]


def keeping_parts(found: Keeping, now: datetime) -> list[Part]:
    """The parts about closed letters, as the last round of retention has left them; empty before it."""
    parts: list[Part] = []
    if found.round is not None:
        ages = [
            (one.name, one.pile.letters, byte_size(one.pile.size))
            for one in named_ages(found.round.kept.ages)
        ]
        parts.append(Facts("Retention", retention_facts(found.round, now)))
        parts += [Table(_AGE_COLUMNS, ages)] if ages else []
    archive = archive_facts(found)
    return [*parts, Facts("Archive", archive)] if archive else parts


def lost_parts(found: Losses) -> list[Part]:
    """The parts about killed workers; empty if nothing is lost, waits, or is not covered."""
    facts, reports = lost_facts(found), found.lost.reports
    parts: list[Part] = [Facts("Killed workers", facts)] if facts else []
    return [*parts, table_of(_REPORT_FIELDS, reports, "Reports of workers")] if reports else parts


def _count_table(title: str, counts: Mapping[str, int], *, drawn: bool) -> Table:
    columns = [Column(title), Column("OPEN", right=True, rigid=True)]
    if not drawn:
        return Table(columns, [*counts.items()])
    top = max(counts.values(), default=0)
    rows = [(name, count, bar(count, top, _BAR_WIDTH)) for name, count in counts.items()]
    if len(rows) > _TOP:
        rest = sum(count for _name, count, _bar in rows[_TOP:])
        rows[_TOP:] = [(f"… {len(rows) - _TOP} more", rest, "")]
    return Table([*columns, Column("")], rows)


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The store at one moment."""

    stats: Stats
    worklist: Worklist
    #: Those that may still send.
    operations: Sequence[Operation]


def overview_parts(
    found: Overview, owner_of: OwnerOf, now: datetime, command: Command
) -> Iterator[Part]:
    """The parts of the screen.

    :param owner_of: the owner of the route with a name.
    :param command: makes command lines such as ``celery -A shop dlq list``.
    """
    yield glance(found.stats, drawn=True)
    if found.worklist.groups:
        yield group_table(found.worklist.groups, {}, {}, owner_of, now)
    else:
        yield (
            "No group has open letters."
            if not found.stats.depth
            else "All groups are ignored or resolved."
        )
    if any(found.worklist.marked.values()):
        yield _marked(found)
    if found.operations:
        yield operation_table(found.operations)
    yield Facts("Next", list(_next(found, command)))


def _marked(found: Overview) -> str:
    said = (
        f"{count:,}{' or more' * (count == MOST_MARKED)} {mark.value}"
        for mark, count in found.worklist.marked.items()
        if count
    )
    return f"Groups that need a decision: {', '.join(said)}."


def _next(found: Overview, command: Command) -> Iterator[tuple[str, str]]:
    if found.worklist.groups:
        worst = found.worklist.groups[0].fingerprint
        yield "One group", command("groups", "show", worst)
        yield "For a ticket", command("brief", worst)
        yield "Its letters", command("list", "--group", worst)
    else:
        yield "Check the set-up", command("doctor")
    if found.operations:
        yield "A redrive", command("operations", "show", found.operations[0].id)
    yield "All commands", command("--help")
