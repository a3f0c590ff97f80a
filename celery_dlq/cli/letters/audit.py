"""``dlq audit``: the record of operators' acts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click

from celery_dlq.cli.completion import complete_group, complete_letter
from celery_dlq.cli.options import Word, after_option, format_option, limit_option, moment_option
from celery_dlq.cli.screens.parts import Block, Column, Field, table_of
from celery_dlq.cli.session import Session, pass_session
from celery_dlq.store.base import ACTS, AuditRow
from celery_dlq.view import times
from celery_dlq.view.acts import sentence
from celery_dlq.view.lookup import audited, fingerprint, letter_id
from celery_dlq.view.operations import named_values
from celery_dlq.view.records import as_record


@click.command("audit")
@click.option(
    "--act", type=Word("an act in the audit", ACTS), metavar="ACT",
    help="Only this kind of act.",
)  # fmt: skip
@click.option("--who", metavar="NAME", help="Only this operator.")
@click.option(
    "--letter", "task_id", metavar="ID", shell_complete=complete_letter,
    help="Only acts on this letter, or on an operation with it.",
)  # fmt: skip
@click.option(
    "--group", metavar="GROUP", shell_complete=complete_group,
    help="Only acts on this group, or on one of the newest operations that chose it.",
)  # fmt: skip
@moment_option("--since", "Only acts at or after this time: 90m, 2h, 3d or 1w ago, or ISO 8601.")
@limit_option("Acts per page.", default=50)
@after_option
@format_option
@pass_session
def audit(
    session: Session,
    act: str | None,
    who: str | None,
    task_id: str | None,
    group: str | None,
    since: datetime | None,
    limit: int,
    after: str | None,
    form: str,
) -> None:
    """List the acts of operators, newest first.

    Shows who did it, when, from which machine, and to which letters.
    """
    letter = None if task_id is None else audited(letter_id, session.store, task_id)
    page = session.store.audit.find(
        limit=limit, after=after, act=act, who=who, since=since, letter=letter,
        group=None if group is None else audited(fingerprint, session.store, group),
    )  # fmt: skip
    if letter is not None and not page.rows and not session.store.audit.find(letter=letter).rows:
        session.full_id(letter)  # neither a letter nor an act has an unknown id
    table = table_of(_FIELDS, page.rows) if page.rows else "No acts match."
    changes = [
        Block(f"Changed by {row.act}, {times.iso(row.at)}", row.detail["changed"])
        for row in page.rows
        if letter is not None and "changed" in row.detail
    ]
    session.screen.emit(form, [*map(as_record, page.rows)], table, *changes)
    session.say_next(page.next)


def _where(row: AuditRow) -> str:
    # A diff has many lines, so it is shown below the table, for a single letter.
    return named_values({name: value for name, value in row.detail.items() if name != "changed"})


_FIELDS: Sequence[Field] = (
    (Column("WHEN", rigid=True), lambda row: row.at),
    (Column("WHO", rigid=True), lambda row: row.who),
    (Column("FROM", from_width=100), lambda row: row.host),
    (Column("DID", fold=True), sentence),
    (Column("WHY", fold=True), lambda row: row.why),
    (Column("WHERE", fold=True), _where),
)
