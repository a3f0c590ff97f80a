"""The command that tells what operators did."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from celery_dlq.cli.options import format_option, limit_option, read_with
from celery_dlq.cli.render import Column, Part, Table
from celery_dlq.cli.session import Session
from celery_dlq.store.base import AuditRow
from celery_dlq.view import times
from celery_dlq.view.operations import named_values
from celery_dlq.view.records import audit_record

_COLUMNS = (
    Column("WHEN", rigid=True),
    Column("WHO", rigid=True),
    Column("FROM", from_width=100),
    Column("ACT", rigid=True),
    Column("LETTERS", right=True, rigid=True),
    Column("WHY", fold=True),
    Column("ON", fold=True),
)


@click.command("audit")
@click.option("--act", metavar="ACT", help="Only this act: redrive, edit, discard, pause, …")
@click.option("--who", metavar="NAME", help="Only this operator.")
@click.option(
    "--letter", "task_id", metavar="ID", help="On this letter, or on an operation that it was in."
)
@click.option(
    "--since", metavar="TIME",
    callback=read_with(lambda value: times.parse_moment(value, times.utc_now())),
    help="Done at or after: 90m, 2h, 3d, 1w ago, or ISO 8601.",
)  # fmt: skip
@limit_option("Acts of a page.", default=50)
@click.option("--after", metavar="CURSOR", help="Continue behind the page that named this cursor.")
@format_option
@click.pass_obj
def audit(
    cli: Any,
    act: str | None,
    who: str | None,
    task_id: str | None,
    since: datetime | None,
    limit: int,
    after: str | None,
    form: str,
) -> None:
    """Show what operators did, newest first.

    Who, when, from which machine, and on which letters.
    """
    session = Session(cli)
    letter = None if task_id is None else session.full_id(task_id)
    page = session.store.audit(
        limit=limit, after=after, act=act, who=who, since=since, letter=letter
    )
    session.screen.emit(form, [*map(audit_record, page.rows)], _table(page.rows))
    if page.next:
        session.say(f"More: add --after {page.next}")


def _table(found: Sequence[AuditRow]) -> Part:
    if not found:
        return "No act is recorded."
    rows = [
        (row.at, row.who, row.host, row.act, row.count, row.why, named_values(row.detail))
        for row in found
    ]
    return Table(_COLUMNS, rows)
