"""``dlq archive``: moves letters into the archive; lists, shows, checks, restores and exports them there."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from celery_dlq.archive.reading import Finding, Wanted
from celery_dlq.archive.segment import Line, moment
from celery_dlq.base.codec import dump_json
from celery_dlq.cli.exits import DONE, FAILED, PARTLY, NamingGroup, leave
from celery_dlq.cli.options import (
    MAIN_FILTERS,
    Chosen,
    body_option,
    filters,
    format_option,
    selection_options,
)
from celery_dlq.cli.screens.operation import Command
from celery_dlq.cli.screens.parts import Block, Column, Facts, Field, Part, Value, table_of
from celery_dlq.cli.selection import LETTERS, confirm, confirm_act, select
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.errors import ContentsSealed, UnknownLetter
from celery_dlq.model.states import CLOSED_STATES
from celery_dlq.store.base import Filter
from celery_dlq.upkeep.expiring import removing
from celery_dlq.view.letters import ERROR, LETTER
from celery_dlq.view.records import archived_record, finding_record, segment_record
from celery_dlq.view.text import byte_size, counted, some, visible

#: The filters whose values an archived letter has.
_FILTERS = ("task", "exception", "group", "route", "since", "until", "release", "tag")

_SEGMENT_FIELDS: Sequence[Field] = (
    (Column("SEGMENT", rigid=True), lambda one: one.id),
    (Column("LETTERS", right=True, rigid=True), lambda one: one.letters),
    (Column("SIZE", right=True, rigid=True), lambda one: byte_size(one.size)),
    (Column("FIRST FAILURE", from_width=80), lambda one: one.first_failed_at),
    (Column("LAST FAILURE"), lambda one: one.last_failed_at),
    (Column("ARCHIVED", from_width=100), lambda one: one.archived_at),
)

_FINDING_FIELDS: Sequence[Field] = (
    (Column("PROBLEM", rigid=True), lambda finding: finding.problem.value),
    (Column("FILE", fold=True), lambda finding: finding.key),
    (Column("MEANING", fold=True), lambda finding: finding.reason),
)


def _new_file(ctx: click.Context, param: click.Parameter, name: str) -> Path:
    try:
        os.lstat(name)
    except FileNotFoundError:
        return Path(name)
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise click.BadParameter(f"it cannot be the name of a file: {said}", ctx, param) from error
    raise click.BadParameter("the file exists; give the name of a new one.", ctx, param)


@click.group("archive", cls=NamingGroup, alone="list")
def archive() -> None:
    """Archive, list, check and restore letters."""


@archive.command("run")
@filters(only=MAIN_FILTERS, states=tuple(sorted(CLOSED_STATES)), default="closed letters")
@selection_options
@pass_session
def run(session: Session, chosen: Chosen, wanted: Filter) -> None:
    """Move closed letters into the archive now, whatever their age.

    Workers move those that have expired by themselves; see `retention`.
    """
    archive = session.queue.archive
    wanted = select(session, chosen, wanted, CLOSED_STATES)
    failed = confirm_act(session, "Archive {}?", wanted, chosen)
    with removing(session.store, "dlq archive run") as (lease, _):
        moved = archive.move(wanted, lease, who=operator())
    session.done(f"Archived {counted(moved, *LETTERS)}. See: {session.command('archive', 'list')}")
    leave(PARTLY if failed else DONE)


@archive.command("list")
@format_option
@pass_session
def list_segments(session: Session, form: str) -> None:
    """List the segments of the archive, oldest first."""
    segments = session.queue.archive.segments()
    url = session.queue.archive.bucket.shown
    table = table_of(_SEGMENT_FIELDS, segments, url)
    empty = "" if segments else f"The archive {url} has no segments."
    session.screen.emit(form, [*map(segment_record, segments)], table, empty)


@archive.command("adopt")
@pass_session
def adopt(session: Session) -> None:
    """Take over files that the store has no row for.

    They are of another store, or this one was restored from a backup. From then on, the other commands find
    their letters. Stop the other store from using the place first.
    """
    adopted = session.queue.archive.adopt()
    session.done(f"Adopted {counted(len(adopted), 'segment')}.")


@archive.command("show")
@click.argument("task_id", metavar="ID")
@body_option("Also the message's body, with its secrets, in base64; not in a table.")
@format_option
@pass_session
def show(session: Session, task_id: str, with_body: bool, form: str) -> None:
    """Show one archived letter, without its secrets.

    ID is the task id in full. If the letter was archived more than once, this is the last copy.
    """
    search = session.queue.archive.find(Wanted(ids=frozenset({task_id})))
    found = next(iter(search), None)
    _report(session, search.findings)
    if found is None:
        limits = ", as far as it can be read" if search.findings else ""
        raise UnknownLetter(
            f"The archive has no letter {task_id}{limits}; give the whole task id. If the letter is still in "
            "the store, run: celery -A <app> dlq show"
        )
    why = ""
    try:
        line = {**session.queue.archive.opened(found.line)}
    except ContentsSealed as error:
        why = str(error)
        letter = {**found.line["letter"], "message": ""}
        line = {**found.line, "letter": letter, "content": {}, "attempts": []}
    record = archived_record(replace(found, line=line), session.queue.redactor)
    if not with_body:
        record["content"].pop("body", None)
    session.screen.emit(form, record, *archived_parts(record, session.command))
    if why:
        session.error(why)
        leave(PARTLY)


@archive.command("verify")
@format_option
@pass_session
def verify(session: Session, form: str) -> None:
    """Check every byte of the archive.

    Reads the file of each segment, and names each that is damaged or missing, and each that the store has no
    row for. Exits with 1 if letters cannot be read; with 4 if there are only files without a row. Changes
    nothing in the archive; `stats` shows when it was last checked.
    """
    result = session.queue.archive.verify(who=operator())
    whole = (
        f"{counted(result.letters, 'letter')} in {counted(result.segments, 'segment')} "
        f"({byte_size(result.size)}) are as they were written."
    )
    findings = table_of(_FINDING_FIELDS, result.findings)
    session.screen.emit(form, [*map(finding_record, result.findings)], findings, whole)
    leave(FAILED if not result.is_whole else PARTLY if result.findings else DONE)


@archive.command("restore")
@filters(only=_FILTERS, states=())
@click.option(
    "--reopen", is_flag=True, help="Make the letters dead again, so that a redrive takes them."
)
@selection_options
@pass_session
def restore(session: Session, chosen: Chosen, wanted: Filter, reopen: bool) -> None:
    """Bring archived letters back into the store.

    They come back closed, unless --reopen is given. The archive keeps them. A letter that the store has stays
    as it is. An ID is a task id in full.
    """
    named = bool(chosen.ids or wanted.restricts)
    if chosen.everything and named:
        raise click.UsageError("--all contradicts ids and filters; use one or the other.")
    if not chosen.everything and not named:
        raise click.UsageError("Give ids or filters, or --all for every letter.")
    search = session.queue.archive.find(archived(chosen.ids, wanted))
    at_most = len(chosen.ids) or search.at_most()
    if chosen.dry_run:
        session.done(f"Up to {counted(at_most, 'letter')} would be restored; nothing was changed.")
        leave(DONE)
    confirm(session, f"Restore up to {counted(at_most, 'letter')}?", count=at_most, yes=chosen.yes)
    result = session.queue.archive.restore(search, who=operator(), reopen=reopen)
    session.done(f"{counted(len(result.restored), 'letter')} restored.")
    _remark(session, "Already in the store", result.living)
    _remark(session, "Not in the archive", result.missing)
    _report(session, result.findings)
    is_whole = not result.missing and not result.findings
    leave(DONE if is_whole else PARTLY if result.restored or result.living else FAILED)


@archive.command("export")
@click.option(
    "--parquet", "target", required=True, metavar="FILE", callback=_new_file,
    help="The new file. Needs the extra parquet.",
)  # fmt: skip
@filters(only=_FILTERS, states=())
@click.option(
    "--contents", is_flag=True,
    help="Include messages, arguments, tracebacks, log lines and exception messages; secrets in them are not "
    "hidden.",
)  # fmt: skip
@pass_session
def export(session: Session, target: Path, wanted: Filter, contents: bool) -> None:
    """Write archived letters to a Parquet file.

    Each letter is a row, with its metadata in typed columns. DuckDB, Trino and Spark read such files. Exits
    with 4 if a segment cannot be read.
    """
    result = session.queue.archive.export(target, archived((), wanted), contents=contents)
    session.done(f"{counted(result.letters, 'letter')} written to {target}.")
    _report(session, result.findings)
    if result.sealed:
        session.error(
            f"The contents of {counted(result.sealed, 'letter')} cannot be decrypted here."
        )
    leave(PARTLY if result.findings or result.sealed else DONE)


def _remark(session: Session, what: str, ids: Sequence[str]) -> None:
    if ids:
        session.say(f"{what}: {some([*map(visible, ids)])}")


def _report(session: Session, findings: Sequence[Finding]) -> None:
    for finding in findings:
        session.error(finding.reason)


def archived(ids: Sequence[str], wanted: Filter) -> Wanted:
    """The archived letters that ids and filters select."""
    return Wanted(
        ids=frozenset(ids), failed_since=wanted.since, failed_until=wanted.until,
        where=lambda line: _matches(line["letter"], wanted),
    )  # fmt: skip


def _matches(letter: Line, wanted: Filter) -> bool:
    return (
        _has_name(letter["task"], wanted.task)
        and _has_name(letter["exception_type"], wanted.exception)
        and letter["fingerprint"].startswith(wanted.group or "")
        and wanted.route in (None, letter["route"])
        and wanted.release in (None, letter["release"])
        and (wanted.tag is None or wanted.tag in json.loads(letter["tags"]))
    )


def _has_name(dotted: str, wanted: str | None) -> bool:
    """Whether a name is ``wanted``, in full or in its last part."""
    return wanted is None or dotted == wanted or dotted.endswith(f".{wanted}")


def archived_parts(record: Mapping[str, Any], command: Command) -> list[Part]:
    """The parts of the screen of an archived letter, from its record."""
    letter, content = record["letter"], record["content"]
    titles = {field.name: field.title for field in LETTER if field.part not in ("", ERROR)}
    facts = [(titles[name], _said(name, letter[name])) for name in titles if name in letter]
    counts = [("Attempts", letter.get("attempt_count")), ("Segment", record["segment"])]
    error = f"{letter.get('exception_type', '')}: {letter.get('message', '')}"
    arguments = [(name, dump_json(content[name])) for name in ("args", "kwargs") if name in content]
    return [
        Facts("Archived letter", [*facts, *counts]),
        Block("Error", error),
        Facts("Arguments", arguments),
        Block("Traceback", (content.get("traceback") or "").rstrip()),
        Block("Lines that it logged", content.get("log") or ""),
        f"Next: {command('archive', 'restore', str(letter['task_id']))}",
    ]


def _said(name: str, value: Any) -> Value:
    if name.endswith("_at") and value:
        return moment(value)
    return ", ".join(value) if isinstance(value, list) else value
