"""``dlq archive``: moves letters into the archive; lists, shows, checks, restores and exports them there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from celery_dlq.archive.finding import Finding
from celery_dlq.archive.reading import Restoration, Wanted
from celery_dlq.cli.exits import DONE, FAILED, PARTLY, NamingGroup
from celery_dlq.cli.options import filters, format_option, selection_options
from celery_dlq.cli.retention.choosing import archived, archived_filters
from celery_dlq.cli.retention.lease import removing
from celery_dlq.cli.screens.archive import archived_parts, findings_table, segments_table
from celery_dlq.cli.selection import LETTERS, confirm, confirm_act, select
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.errors import UnknownLetter
from celery_dlq.model.states import CLOSED_STATES
from celery_dlq.store.base import Filter
from celery_dlq.view.archived import archived_record, finding_record, segment_record
from celery_dlq.view.text import byte_size, counted, visible

#: Task ids that a remark lists.
_NAMED = 10


def _new_file(ctx: click.Context, param: click.Parameter, name: str) -> Path:
    try:
        os.lstat(name)
    except FileNotFoundError:
        return Path(name)
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise click.BadParameter(f"it cannot be the name of a file: {said}", ctx, param) from error
    raise click.BadParameter("the file exists; give the name of a new one.", ctx, param)


@click.group("archive", cls=NamingGroup)
def archive() -> None:
    """Archive, list, check and restore letters."""


@archive.command("run")
@filters(states=tuple(sorted(CLOSED_STATES)), default="closed letters")
@selection_options
@pass_session
def run(session: Session, ids: Sequence[str], everything: bool, yes: bool, wanted: Filter) -> None:
    """Move closed letters into the archive now, whatever their age.

    Workers move those that have expired by themselves; see `retention`.
    """
    archive = session.queue.archive
    wanted = select(session, ids, wanted, everything=everything)
    wanted = replace(wanted, states=wanted.states or CLOSED_STATES)
    failed = confirm_act(session, "Archive {}?", wanted, yes=yes)
    with removing(session, "dlq archive run") as (lease, _pause):
        moved = archive.move(wanted, lease, who=operator())
    session.done(f"Archived {counted(moved, *LETTERS)}. See: {session.command('archive', 'ls')}")
    click.get_current_context().exit(PARTLY if failed else DONE)


@archive.command("ls")
@format_option
@click.pass_context
@pass_session
def list_segments(session: Session, ctx: click.Context, form: str) -> None:
    """List the segments of the archive, oldest first.

    Segments that were replaced because a letter was forgotten are left out. Exits with 4 if a manifest cannot
    be read.
    """
    chains = session.queue.archive.chains()
    segments = chains.current()
    url = session.queue.archive.bucket.shown
    empty = f"The archive {url} has no segments."
    table = segments_table(segments, url) if segments else empty
    session.screen.emit(form, [*map(segment_record, segments)], table)
    _report(session, chains.unreadable)
    ctx.exit(PARTLY if chains.unreadable else DONE)


@archive.command("show")
@click.argument("task_id", metavar="ID")
@format_option
@pass_session
def show(session: Session, task_id: str, form: str) -> None:
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
    record = archived_record(found, session.queue.redactor)
    session.screen.emit(form, record, *archived_parts(record, session.command))


@archive.command("verify")
@format_option
@click.pass_context
@pass_session
def verify(session: Session, ctx: click.Context, form: str) -> None:
    """Check every byte of the archive.

    Reads all segments and manifests, and names each file that is damaged, missing, or not in its place. Exits
    with 1 if letters cannot be read; with 4 if there are only files to clean up, or files that a newer
    release wrote. Changes nothing in the archive; `stats` shows when it was last checked.
    """
    result = session.queue.archive.verify(who=operator())
    whole = (
        f"{counted(result.letters, 'letter')} in {counted(result.segments, 'segment')} "
        f"({byte_size(result.size)}) are as they were written."
    )
    parts = [findings_table(result.findings), whole] if result.findings else [whole]
    session.screen.emit(form, [*map(finding_record, result.findings)], *parts)
    ctx.exit(FAILED if not result.is_whole else PARTLY if result.findings else DONE)


@archive.command("restore")
@archived_filters
@click.option(
    "--reopen", is_flag=True, help="Make the letters dead again, so that a redrive takes them."
)
@selection_options
@click.pass_context
@pass_session
def restore(
    session: Session,
    ctx: click.Context,
    ids: Sequence[str],
    everything: bool,
    yes: bool,
    segment: str | None,
    wanted: Filter,
    reopen: bool,
) -> None:
    """Bring archived letters back into the store.

    They come back closed, unless --reopen is given. The archive keeps them. A letter that the store has stays
    as it is. An ID is a task id in full.
    """
    named = bool(ids or segment or wanted.restricts)
    if everything and named:
        raise click.UsageError(
            "--all contradicts ids, --segment and filters; use one or the other."
        )
    if not everything and not named:
        raise click.UsageError("Give ids, --segment or filters, or --all for every letter.")
    search = session.queue.archive.find(archived(session, ids, segment, wanted))
    at_most = len(ids) or search.at_most()
    confirm(session, f"Restore up to {counted(at_most, 'letter')}?", count=at_most, yes=yes)
    result = session.queue.archive.restore(search, who=operator(), reopen=reopen)
    session.done(f"{counted(len(result.restored), 'letter')} restored.")
    _remark(session, "Already in the store", result.living)
    _remark(session, "Not in the archive", result.missing)
    _report(session, result.findings)
    ctx.exit(_status(result))


@archive.command("export")
@click.option(
    "--parquet", "target", required=True, metavar="FILE", callback=_new_file,
    help="The new file. Needs the extra parquet.",
)  # fmt: skip
@archived_filters
@click.option(
    "--contents", is_flag=True,
    help="Include messages, arguments, tracebacks and exception messages; secrets in them are not hidden.",
)  # fmt: skip
@click.pass_context
@pass_session
def export(
    session: Session,
    ctx: click.Context,
    target: Path,
    segment: str | None,
    wanted: Filter,
    contents: bool,
) -> None:
    """Write archived letters to a Parquet file.

    Each letter is a row, with its metadata in typed columns. DuckDB, Trino and Spark read such files. Exits
    with 4 if a segment cannot be read.
    """
    result = session.queue.archive.export(
        target, archived(session, (), segment, wanted), contents=contents
    )
    session.done(f"{counted(result.letters, 'letter')} written to {target}.")
    _report(session, result.findings)
    ctx.exit(PARTLY if result.findings else DONE)


def _status(result: Restoration) -> int:
    if not result.missing and not result.findings:
        return DONE
    return PARTLY if result.restored or result.living else FAILED


def _remark(session: Session, what: str, ids: Sequence[str]) -> None:
    if ids:
        more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
        session.say(f"{what}: {', '.join(map(visible, ids[:_NAMED]))}{more}")


def _report(session: Session, findings: Sequence[Finding]) -> None:
    for finding in findings:
        session.error(finding.reason)
