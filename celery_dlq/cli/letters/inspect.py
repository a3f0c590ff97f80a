"""``dlq list``, ``show`` and ``audit``: look at letters, and at the acts of operators."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from datetime import datetime

import click

from celery_dlq.cli.exits import DONE, FAILED, HeadedCommand, NamingGroup, leave
from celery_dlq.cli.options import (
    Word,
    after_option,
    body_option,
    filters,
    format_option,
    limit_option,
    moment_option,
)
from celery_dlq.cli.screens.letter import letter_parts, letter_table
from celery_dlq.cli.screens.parts import Block, Column, Field, Part, table_of
from celery_dlq.cli.selection import checked
from celery_dlq.cli.session import Session, pass_session
from celery_dlq.store.base import ACTS, AuditRow, Filter, Page
from celery_dlq.view import lookup, records, times
from celery_dlq.view.acts import sentence
from celery_dlq.view.fields import as_record
from celery_dlq.view.letters import WholeLetter, page_of_trace
from celery_dlq.view.operations import named_values
from celery_dlq.view.text import counted

#: Seconds of a search that reads letters one by one, before a person sees what it has found so far.
_PATIENCE_S = 10.0

#: The seconds in which closed letters are counted.
_CLOSED_PATIENCE_S = 0.5


@click.command("list", cls=HeadedCommand)
@filters()
@limit_option("Letters per page.", default=50)
@after_option
@format_option
@pass_session
def list_letters(
    session: Session, wanted: Filter, limit: int, after: str | None, form: str
) -> None:
    """List dead letters, newest failure first."""
    wanted = checked(session, wanted)
    # A program needs whole pages, and can wait.
    patience_s = _PATIENCE_S if form == "table" else None
    page = session.store.letters.find(wanted, limit=limit, after=after, patience_s=patience_s)
    rows = [
        records.letter_record(letter, owner=session.queue.owner_of(letter.route))
        for letter in page.letters
    ]
    session.screen.emit(form, rows, *_listed(page))
    if page.searched_to:
        session.say(
            f"Searched back to {times.iso(page.searched_to)}; older letters may also match. To continue the "
            f"search, add: --after {page.next}"
        )
    else:
        session.say_next(page.next)
    if form == "table" and wanted.restricts and not wanted.states and not page.next:
        patience_s = _CLOSED_PATIENCE_S
        said, states = lookup.closed_too(session.store, wanted, patience_s=patience_s)
        if said:
            session.say(f"{said}; add: {' '.join(f'--state {state}' for state in states)}")


def _listed(page: Page) -> Iterator[Part]:
    if page.searched_to and not page.letters:
        yield "No matching letters found so far."
    else:
        yield letter_table(page.letters)
    if page.further:
        yield "Further back; there may be more letters before these and between them:"
        yield letter_table(page.further)


@click.command("show")
@click.argument("task_id", metavar="ID")
@body_option(
    "Also the message's body, with its secrets: in base64; in a table, as a hex dump if its arguments could "
    "not be read and it is not text."
)
@format_option
@pass_session
def show(session: Session, task_id: str, with_body: bool, form: str) -> None:
    """Show one letter in full.

    Starts with the reason why it died; includes its redrives, changes of its message, and the acts of
    automations.
    ID is a task id, or a prefix of it that no other letter has.
    """
    letter = session.letter(task_id)
    whole = WholeLetter.of(
        session.store, letter, route_owner=session.queue.owner_of(letter.route),
        trace_page=page_of_trace(letter, session.queue.settings.trace_url),
    )  # fmt: skip
    record = whole.record()
    if with_body:
        record["body"] = base64.b64encode(letter.envelope.body).decode("ascii")
    session.screen.emit(form, record, *letter_parts(whole, session.command, with_body=with_body))


@click.group("audit", cls=NamingGroup, alone="list")
def audit() -> None:
    """List the acts of operators, and check that no one has changed the list."""


@audit.command("list")
@click.option(
    "--act", type=Word("an act in the audit", ACTS), metavar="ACT",
    help="Only this kind of act.",
)  # fmt: skip
@click.option("--who", metavar="NAME", help="Only this operator.")
@click.option(
    "--letter", "task_id", metavar="ID",
    help="Only acts on this letter, or on an operation with it.",
)  # fmt: skip
@click.option(
    "--group", metavar="GROUP",
    help="Only acts on this group, or on one of the newest operations that chose it.",
)  # fmt: skip
@moment_option("--since", "Only acts at or after this time: 90m, 2h, 3d or 1w ago, or ISO 8601.")
@limit_option("Acts per page.", default=50)
@after_option
@format_option
@pass_session
def list_acts(
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
    letter = None if task_id is None else lookup.audited(lookup.letter_id, session.store, task_id)
    page = session.store.audit.find(
        limit=limit, after=after, act=act, who=who, since=since, letter=letter,
        group=None if group is None else lookup.audited(lookup.fingerprint, session.store, group),
    )  # fmt: skip
    if letter is not None and not page.rows and not session.store.audit.find(letter=letter).rows:
        session.full_id(letter)  # neither a letter nor an act has an unknown id
    table = table_of(_ACT_FIELDS, page.rows) if page.rows else "No acts match."
    changes = [
        Block(f"Changed by {row.act}, {times.iso(row.at)}", row.detail["changed"])
        for row in page.rows
        if letter is not None and "changed" in row.detail
    ]
    session.screen.emit(form, [*map(records.as_record, page.rows)], table, *changes)
    session.say_next(page.next)


def _checked_head(_context: click.Context, _param: click.Parameter, head: str | None) -> str | None:
    if head and not re.fullmatch(r"[0-9]{1,18}:[0-9a-f]{64}", head):
        raise click.BadParameter(f"{head!r} is not N:HASH, as `dlq audit verify` prints it.")
    return head


@audit.command("verify")
@click.option(
    "--head", "kept", metavar="N:HASH", callback=_checked_head,
    help="An earlier head that was kept elsewhere: checks that the chain still has it.",
)  # fmt: skip
@format_option
@pass_session
def verify(session: Session, kept: str | None, form: str) -> None:
    """Check that the audit is as it was written.

    Each write to the audit has added a link to a chain of hashes. Says how many acts and links were checked,
    the head of the chain, and each act or link that was changed, deleted, inserted or reordered; exits with 1
    if there is one. Changes nothing.
    """
    result = session.store.audit.verify(kept)
    keyed = f", {result.keyed:,} of them with the key of the store" if result.keyed else ""
    checked = f"Checked {counted(result.acts, 'act')} and {counted(result.links, 'link')}{keyed}."
    found = result.breaks or ["No one has changed the audit."]
    record = as_record(result, ("acts", "links", "keyed", "head", "breaks"))
    session.screen.emit(form, record, checked, f"Head: {result.head}", *found)
    leave(FAILED if result.breaks else DONE)


def _where(row: AuditRow) -> str:
    # A diff has many lines, so it is shown below the table, for a single letter.
    return named_values({name: value for name, value in row.detail.items() if name != "changed"})


_ACT_FIELDS: Sequence[Field] = (
    (Column("WHEN", rigid=True), lambda row: row.at),
    (Column("WHO", rigid=True), lambda row: row.who),
    (Column("FROM", from_width=100), lambda row: row.host),
    (Column("DID", fold=True), sentence),
    (Column("WHY", fold=True), lambda row: row.why),
    (Column("WHERE", fold=True), _where),
)
