"""``dlq delete`` and ``retention``: remove letters for ever, by hand and by their age; and the lease under
which one process at a time removes letters."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click

from celery_dlq.api.retention import check_reason, deletable
from celery_dlq.cli.exits import DONE, FAILED, PARTLY, NamingGroup, leave
from celery_dlq.cli.options import (
    TAKEABLE,
    Chosen,
    filters,
    format_option,
    selection_options,
    why_option,
)
from celery_dlq.cli.screens.parts import Column, Field, table_of
from celery_dlq.cli.selection import LETTERS, confirm_act, select
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.errors import OpenLetters
from celery_dlq.model.states import CLOSED_STATES
from celery_dlq.store.base import Filter, Lease
from celery_dlq.store.tenure import Tenure, kept
from celery_dlq.upkeep.expiring import LEASE
from celery_dlq.view.stats import age_of, holding_record, letters_of
from celery_dlq.view.text import byte_size, counted

_CLOSED = tuple(sorted(CLOSED_STATES))

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


@contextmanager
def removing(session: Session, command: str) -> Iterator[tuple[Lease, Callable[[float], bool]]]:
    """The lease, until the ``with`` block ends, and a function that waits for a number of seconds and says
    whether the lease was lost. Ends the command if another process has the lease.

    :param command: names the holder.
    """
    holder = f"{command}/{os.getpid()}/{uuid.uuid4().hex}"
    tenure = Tenure(lambda: session.queue.store, LEASE, holder)
    lease = tenure.prolong()
    if lease is None:
        session.error(
            "A worker or another command removes letters at the moment. Try again in a minute."
        )
        leave(FAILED)
    try:
        with kept(tenure, lease) as is_held:
            yield lease, lambda seconds: _wait(seconds) or not is_held()
    finally:
        tenure.end()


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


@click.command("delete")
@filters(states=(*_CLOSED, *TAKEABLE), default="closed letters")
@click.option(
    "--open", "is_open", is_flag=True,
    help="Delete open letters instead of closed ones; their messages are lost. Needs --why.",
)  # fmt: skip
@why_option
@selection_options
@pass_session
def delete(session: Session, chosen: Chosen, wanted: Filter, is_open: bool, why: str) -> None:
    """Delete closed letters for ever.

    They go with their messages and attempts. The counts of arrivals stay, and so do the audit and the results
    of redrives.
    """
    wanted = _checked(select(session, chosen, wanted), is_open=is_open, why=why)
    failed = confirm_act(
        session, "Delete {} for ever?", wanted, yes=chosen.yes, can_be_undone=False
    )
    done = session.queue.delete(wanted, who=operator(), why=why, is_open=is_open)
    session.done(f"Deleted {counted(done, *LETTERS)}.")
    leave(PARTLY if failed else DONE)


def _checked(wanted: Filter, *, is_open: bool, why: str) -> Filter:
    """``wanted`` with the states of the letters to delete.

    :raises click.UsageError: open letters would be deleted by mistake or without a reason.
    :raises DeletionError: open and closed letters would be deleted together.
    """
    try:
        check_reason(why, is_open=is_open)
        return deletable(wanted, is_open=is_open)
    except OpenLetters as error:
        raise click.UsageError(f"{error} Add --open and --why TEXT.") from error


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
        leave(PARTLY)
