"""``dlq retention``: what expires, and a round at once."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from celery_dlq.cli.exits import FAILED, NamingGroup
from celery_dlq.cli.options import format_option
from celery_dlq.cli.screens.render import Column, Field, table_of
from celery_dlq.cli.selection import LETTERS
from celery_dlq.cli.session import Session, pass_session
from celery_dlq.redrive.lease import Tenure, kept
from celery_dlq.upkeep.retention.thread import LEASE
from celery_dlq.view.operations import named_values
from celery_dlq.view.text import byte_size, counted

if TYPE_CHECKING:
    from celery_dlq.upkeep.retention.engine import PlanRow

_FIELDS: Sequence[Field] = (
    (Column("LETTERS", fold=True), lambda row: _letters_of(row)),
    (Column("KEPT FOR", rigid=True), lambda row: _age_of(row)),
    (Column("CLOSED", right=True, rigid=True), lambda row: row.kept.letters),
    (Column("SIZE", right=True, from_width=100), lambda row: byte_size(row.kept.size)),
    (Column("EXPIRED", right=True, rigid=True), lambda row: row.kept.expired),
    (Column("SIZE", right=True, rigid=True), lambda row: byte_size(row.kept.expired_size)),
    (Column("OLDEST", rigid=True), lambda row: row.kept.oldest_closed_at),
)


@click.group("retention", cls=NamingGroup)
def retention() -> None:
    """See how long closed letters are kept, and delete those that have expired.

    Workers delete them once an hour, by the setting dlq_retention. Open letters never expire.
    """


@retention.command("plan")
@format_option
@pass_session
def plan(session: Session, form: str) -> None:
    """Show what each entry of dlq_retention keeps, and what would be deleted now.

    It reads all closed letters, and changes nothing.
    """
    rows = session.queue.retention.plan()
    session.screen.emit(form, [_record(row) for row in rows], table_of(_FIELDS, rows))


@retention.command("run")
@pass_session
def run(session: Session) -> None:
    """Delete now what has expired, instead of at the next hourly round."""
    session.queue.retention  # noqa: B018 - checks the setting before the lease is taken
    holder = f"dlq retention run/{os.getpid()}/{uuid.uuid4().hex}"
    tenure = Tenure(lambda: session.queue.store, LEASE, holder)
    lease = tenure.prolong()
    if lease is None:
        session.cli.error("A worker deletes expired letters at the moment. Try again in a minute.")
        click.get_current_context().exit(FAILED)
    try:
        with kept(tenure, lease) as is_held:
            deleted = session.queue.retention.run(lease, lambda s: _pause(s) or not is_held())
    finally:
        tenure.end()
    session.done(f"Deleted {counted(deleted, *LETTERS)}.")


def _pause(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _letters_of(row: PlanRow) -> str:
    if row.keep is None:
        return "all others"
    return named_values(row.keep.where.to_dict()) or "every closed letter"


def _age_of(row: PlanRow) -> str:
    if row.keep is None or row.keep.age is None:
        return "ever"
    days = row.keep.age.total_seconds() / 86_400
    return f"{days:g} d"


def _record(row: PlanRow) -> dict[str, Any]:
    keep, kept_letters = row.keep, row.kept
    return {
        "filter": None if keep is None else keep.where.to_dict(),
        "keep_s": None if keep is None or keep.age is None else keep.age.total_seconds(),
        "letters": kept_letters.letters,
        "bytes": kept_letters.size,
        "expired": kept_letters.expired,
        "expired_bytes": kept_letters.expired_size,
        "oldest_closed_at": kept_letters.oldest_closed_at,
    }
