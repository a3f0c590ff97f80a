"""``dlq retention``: shows which letters expire, and deletes them at once."""

from __future__ import annotations

from collections.abc import Sequence

import click

from celery_dlq.cli.exits import PARTLY, NamingGroup
from celery_dlq.cli.options import format_option
from celery_dlq.cli.retention.lease import removing
from celery_dlq.cli.screens.render import Column, Field, table_of
from celery_dlq.cli.selection import LETTERS
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.view.stats.keeping import age_of, holding_record, letters_of
from celery_dlq.view.text import byte_size, counted

_FIELDS: Sequence[Field] = (
    (Column("LETTERS", fold=True), letters_of),
    (Column("KEPT FOR", rigid=True), age_of),
    (Column("CLOSED", right=True, rigid=True), lambda row: row.kept.every.letters),
    (Column("SIZE", right=True, from_width=100), lambda row: byte_size(row.kept.every.size)),
    (Column("EXPIRED", right=True, rigid=True), lambda row: row.kept.expired.letters),
    (Column("SIZE", right=True, rigid=True), lambda row: byte_size(row.kept.expired.size)),
    (Column("IN 1 D", right=True, from_width=100), lambda row: row.kept.within_day),
    (Column("IN 7 D", right=True, from_width=100), lambda row: row.kept.within_week),
    (Column("OLDEST", rigid=True), lambda row: row.kept.oldest_closed_at),
)


@click.group("retention", cls=NamingGroup)
def retention() -> None:
    """See which closed letters expire, and when.

    Workers delete them once an hour, by the setting dlq_retention, or move them into the archive. Open
    letters never expire.
    """


@retention.command("plan")
@format_option
@pass_session
def plan(session: Session, form: str) -> None:
    """Show what each entry of dlq_retention keeps and deletes.

    Shows what would be deleted now, and what expires within a day and a week. It reads all closed letters,
    and changes nothing.
    """
    rows = session.queue.retention.plan()
    session.screen.emit(form, [*map(holding_record, rows)], table_of(_FIELDS, rows))


@retention.command("run")
@pass_session
def run(session: Session) -> None:
    """Delete now what has expired, instead of at the next hourly round.

    With dlq_archive_url, letters are moved into the archive.
    """
    engine = session.queue.retention
    with removing(session, "dlq retention run") as (lease, pause):
        ended = engine.run(lease, pause, who=operator())
    done = "Deleted" if session.queue.settings.archive_url is None else "Archived"
    session.done(f"{done} {counted(ended.letters, *LETTERS)}.")
    if not ended.is_over:
        session.error("It was stopped before its end: another process has taken over.")
        click.get_current_context().exit(PARTLY)
