"""Commands that look and change nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import click

from celery_dlq.cli import records
from celery_dlq.cli.explain import explain_letter, explain_type, names_type
from celery_dlq.cli.letter_table import letter_table
from celery_dlq.cli.letter_view import letter_parts
from celery_dlq.cli.options import GROUP_FILTERS, filters, format_option, limit_option
from celery_dlq.cli.render import Column, Facts, Part, Short, Table
from celery_dlq.cli.session import Session
from celery_dlq.cli.text import bar, counted, first_line, last_part, short_ids, sparkline
from celery_dlq.cli.times import duration
from celery_dlq.store.base import Filter, Group, Stats

_GROUP_COLUMNS = (
    Column("GROUP", rigid=True),
    Column("OPEN", right=True, rigid=True),
    Column("TOTAL", right=True, from_width=80),
    Column("TASK"),
    Column("EXCEPTION"),
    Column("MESSAGE"),
    Column("LAST SEEN", rigid=True),
    Column("FIRST SEEN", from_width=100),
)

_BAR_WIDTH = 30

#: Rows of a table of counts on a terminal; the rest is summed up.
_TOP = 15


@click.command("list")
@filters()
@limit_option("Letters of a page.", default=50)
@click.option("--after", metavar="CURSOR", help="Continue behind the page that named this cursor.")
@format_option
@click.pass_obj
def list_letters(cli: Any, wanted: Filter, limit: int, after: str | None, form: str) -> None:
    """List dead letters, newest failure first."""
    session = Session(cli)
    page = session.store.find(wanted, limit=limit, after=after)
    rows = [records.letter_record(letter) for letter in page.letters]
    session.screen.emit(form, rows, letter_table(page.letters))
    if page.next:
        session.say(f"More: add --after {page.next}")


@click.command("show")
@click.argument("task_id", metavar="ID")
@format_option
@click.pass_obj
def show(cli: Any, task_id: str, form: str) -> None:
    """Show one letter whole, why it died first.

    ID is the task id or a beginning of it that no other letter has.
    """
    session = Session(cli)
    letter = session.letter(task_id)
    session.screen.emit(
        form, records.whole_letter_record(letter), *letter_parts(letter, session.command)
    )


@click.command("groups")
@filters(only=GROUP_FILTERS)
@limit_option("Groups to show.", default=50)
@format_option
@click.pass_obj
def groups(cli: Any, wanted: Filter, limit: int, form: str) -> None:
    """Show what is failing, by cause.

    Counts the open letters that share task, exception and place; the largest group comes first.
    """
    session = Session(cli)
    found = session.store.groups(wanted, limit=limit)
    rows = [records.group_record(group) for group in found]
    session.screen.emit(form, rows, _group_table(found))


def _group_table(found: list[Group]) -> Part:
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
            Short(first_line(group.message), group.message),
            group.last_seen_at,
            group.first_seen_at,
        )
        for short, group in zip(ids, found, strict=True)
    ]
    return Table(_GROUP_COLUMNS, rows)


@click.command("stats")
@format_option
@click.pass_obj
def stats(cli: Any, form: str) -> None:
    """Show depth, arrivals and ages."""
    session = Session(cli)
    found = session.store.stats(session.screen.now)
    record = records.stats_rows(found) if form == "csv" else records.stats_record(found)
    session.screen.emit(form, record, *_stats_parts(found, drawn=session.screen.drawn))


def _stats_parts(found: Stats, *, drawn: bool) -> list[Part]:
    arrivals = sparkline(found.arrivals) if drawn else " ".join(map(str, found.arrivals))
    by_reason = {reason.value: count for reason, count in found.by_reason.items()}
    glance = Facts(
        "At a glance",
        [
            ("Depth", counted(found.depth, "open letter")),
            ("Oldest", found.oldest_open_at),
            (
                "States",
                ", ".join(f"{n:,} {state.value}" for state, n in found.by_state.items() if n),
            ),
            ("Arrivals/h", arrivals),
            (
                "Last 24 h",
                f"{sum(found.arrivals):,}, of them {found.arrivals[-1]:,} in the last hour",
            ),
        ],
    )
    tables = [
        _count_table("TASK", found.by_task, drawn=drawn),
        _count_table("EXCEPTION", found.by_exception, drawn=drawn),
        _count_table("REASON", by_reason, drawn=drawn),
        _count_table("AGE", _age_names(found.ages), drawn=drawn),
    ]
    return [glance, *(table for table in tables if table.rows and found.depth)]


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


def _age_names(ages: Mapping[float, int]) -> dict[str, int]:
    names, lower = {}, 0.0
    for bound, count in ages.items():
        name = f"under {duration(bound)}" if math.isfinite(bound) else f"over {duration(lower)}"
        names[name], lower = count, bound
    return names


@click.command("explain")
@click.argument("what", metavar="ID|EXCEPTION")
@format_option
@click.pass_obj
def explain(cli: Any, what: str, form: str) -> None:
    """Say which rule decided, and why.

    A dotted name, such as requests.ConnectionError, and a builtin, such as ValueError, are taken for
    exception types, all else for the beginning of a letter's id.
    """
    session = Session(cli)
    if names_type(what):
        record, parts = explain_type(what, session.queue.classifier)
    else:
        record, parts = explain_letter(session.letter(what), session.queue.classifier)
    session.screen.emit(form, record, *parts)
