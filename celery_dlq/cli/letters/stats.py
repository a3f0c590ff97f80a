"""The numbers of the store: ``dlq stats``; ``dlq watch``, on a live screen; and ``dlq`` without a command,
what is failing, and the next commands."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from time import sleep
from typing import TYPE_CHECKING

import click

from celery_dlq.cli.exits import one_line
from celery_dlq.cli.options import format_option
from celery_dlq.cli.screens.letter import OwnerOf, group_table
from celery_dlq.cli.screens.operation import Command, operation_table
from celery_dlq.cli.screens.parts import Column, Facts, Field, Part, Table, facts_of, table_of
from celery_dlq.cli.screens.render import Screen
from celery_dlq.cli.session import Session, pass_session
from celery_dlq.errors import CeleryDLQError
from celery_dlq.store.base import Operation, Stats
from celery_dlq.store.keeping import Keeping
from celery_dlq.view import records, times
from celery_dlq.view.groups import MOST_MARKED, Worklist, worklist
from celery_dlq.view.operations import UNDER_WAY
from celery_dlq.view.stats import (
    Losses,
    archive_facts,
    keeping_record,
    losses_of,
    lost_facts,
    lost_record,
    named_ages,
    retention_facts,
    said_why,
)
from celery_dlq.view.text import bar, byte_size, counted, sparkline
from celery_dlq.view.times import age_names

if TYPE_CHECKING:
    from celery_dlq.store import Store

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


@click.command("stats")
@format_option
@pass_session
def stats(session: Session, form: str) -> None:
    """Show the numbers of open, arriving and closed letters.

    Includes ages, what expires next, and the archive. The numbers of closed letters are those of the last
    round of retention; `retention plan` counts them now. About killed workers, it shows lost letters, what
    workers of all machines report, and the files of this machine.
    """
    now, drawn = session.screen.now, session.screen.drawn
    found, kept = session.store.monitoring.stats(now), session.store.reports.keeping()
    losses = losses_of(session.queue)
    report = {
        **records.stats_record(found),
        **keeping_record(kept, now),
        "recorder": lost_record(losses),
    }
    parts = [*stats_parts(found, drawn=drawn), *lost_parts(losses), *keeping_parts(kept, now)]
    session.screen.emit(form, report, *parts)


def glance(found: Stats, *, drawn: bool) -> Facts:
    """Depth, oldest letter, states and arrivals."""
    arrivals = sparkline(found.arrivals) if drawn else " ".join(map(str, found.arrivals))
    states = (f"{count:,} {state.value}" for state, count in found.by_state.items() if count)
    last_day = f"{sum(found.arrivals):,}, {found.arrivals[-1]:,} of them in the last hour"
    return facts_of(
        "At a glance",
        ("Depth", counted(found.depth, "open letter")),
        ("Oldest failure", found.oldest_open_at),
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
    return [glance(found, drawn=drawn), *(tables if found.depth else [])]


def keeping_parts(found: Keeping, now: datetime) -> list[Part]:
    """The parts about closed letters, as the last round of retention has left them; empty before it."""
    kept = found.round
    piles = named_ages(kept.kept.ages) if kept else []
    ages = [(one.name, one.pile.letters, byte_size(one.pile.size)) for one in piles]
    return [
        Facts("Retention", retention_facts(kept, now) if kept else []),
        Table(_AGE_COLUMNS, ages),
        Facts("Archive", archive_facts(found)),
    ]


def lost_parts(found: Losses) -> list[Part]:
    """The parts about killed workers; empty if nothing is lost, waits, or is not covered."""
    reports = table_of(_REPORT_FIELDS, found.lost.reports, "Reports of workers")
    return [Facts("Killed workers", lost_facts(found)), reports]


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


#: The most operations and groups in the overview.
_OPERATIONS, _GROUPS = 3, 10

#: The most lines that the parts other than the groups need, on the live screen and in the overview.
_LIVE_LINES, _OVERVIEW_LINES = 22, 26

#: Seconds between two reads of the store.
_INTERVAL_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The store at one moment."""

    at: datetime
    stats: Stats
    worklist: Worklist
    #: Those that may still send.
    operations: Sequence[Operation]

    @classmethod
    def of(cls, store: Store, other_lines: int, groups: int | None = None) -> Overview:
        """Read the store.

        :param other_lines: the lines of the terminal that are not for groups.
        :param groups: the most groups; None for as many as the terminal has room for.
        """
        now, room = times.utc_now(), max(3, shutil.get_terminal_size().lines - other_lines)
        return cls(
            at=now,
            stats=store.monitoring.stats(now),
            worklist=worklist(store, now, limit=min(room, groups or room)),
            operations=store.operations.find(states=UNDER_WAY, limit=_OPERATIONS),
        )

    def parts(self, owner_of: OwnerOf) -> list[Part]:
        """The parts of its screen.

        :param owner_of: the owner of the route with a name.
        """
        groups = self.worklist.groups
        none = (
            "All groups are ignored or resolved."
            if self.stats.depth
            else "No group has open letters."
        )
        marked = ", ".join(
            f"{count:,}{' or more' * (count == MOST_MARKED)} {mark.value}"
            for mark, count in self.worklist.marked.items()
            if count
        )
        return [
            glance(self.stats, drawn=True),
            group_table(groups, {}, {}, owner_of, times.utc_now()) if groups else none,
            f"Groups that need a decision: {marked}." if marked else "",
            operation_table(self.operations) if self.operations else "",
        ]


@click.command("watch")
@pass_session
def watch(session: Session) -> None:
    """Show depth, arrivals, groups and running redrives, read again every 2 seconds.

    Needs a terminal. Press Ctrl-C to quit.
    """
    if not session.screen.drawn:
        raise click.UsageError(
            f"watch needs a terminal that shows UTF-8; elsewhere, use: {session.command('stats')}"
        )
    seen, problem = Overview.of(session.store, _LIVE_LINES), ""
    with suppress(KeyboardInterrupt):
        while True:
            screen = Screen.of(session.cli)
            text = screen.draw(
                f"Dead letters, every {_INTERVAL_S:g}s; press Ctrl-C to quit",
                problem and f"{problem} The data below is from {times.local(seen.at)}.",
                *seen.parts(session.queue.owner_of),
            )
            click.clear()
            screen.write(text)
            sleep(_INTERVAL_S)
            try:
                seen, problem = Overview.of(session.store, _LIVE_LINES), ""
            except CeleryDLQError as error:
                problem = one_line(str(error))


def show_overview(ctx: click.Context) -> None:
    """Print the overview. If the store cannot be read, print the help first, and end as a command does.

    :raises CeleryDLQError: the store cannot be read, or a setting is not valid.
    :raises click.UsageError: no app is given.
    """
    session = Session(ctx.obj)
    try:
        found = Overview.of(session.store, _OVERVIEW_LINES, _GROUPS)
    except (CeleryDLQError, click.UsageError):
        session.screen.write(f"{ctx.get_help()}\n")
        raise
    commands = Facts("Next", [*_next(found, session.command)])
    session.screen.show(*found.parts(session.queue.owner_of), commands)


def _next(found: Overview, command: Command) -> Iterator[tuple[str, str]]:
    if found.worklist.groups:
        worst = found.worklist.groups[0].fingerprint
        yield "One group", command("groups", "show", worst)
        yield "For a ticket", command("groups", "show", worst, "--format", "markdown")
        yield "Its letters", command("list", "--group", worst)
    else:
        yield "Check the set-up", command("doctor")
    if found.operations:
        yield "A redrive", command("operations", "show", found.operations[0].id)
    yield "All commands", command("--help")
