"""``dlq forget``: erases the letters of a person from the store and from the archive."""

from __future__ import annotations

from collections.abc import Sequence

import click

from celery_dlq.cli.exits import DONE, FAILED, PARTLY
from celery_dlq.cli.options import why_option
from celery_dlq.cli.retention.lease import removing
from celery_dlq.cli.screens.erasure import (
    of_redriven,
    of_short,
    places_of,
    question,
    remarks,
    result_of,
)
from celery_dlq.cli.selection import confirm
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.erasure.erasure import Erasure, Found
from celery_dlq.errors import CeleryDLQError, RepairError


@click.command("forget")
@click.option(
    "--task-id",
    "ids",
    metavar="ID",
    multiple=True,
    help="Task id of a letter, in full; repeatable.",
)
@click.option(
    "--where", "conditions", metavar="PLACE=VALUE", multiple=True,
    help="Letters with this value in their message, such as args.user_id=7; repeatable, and all must hold.",
)  # fmt: skip
@why_option
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@click.pass_context
@pass_session
def forget(
    session: Session,
    ctx: click.Context,
    ids: Sequence[str],
    conditions: Sequence[str],
    why: str,
    yes: bool,
) -> None:
    """Erase the letters of a person for ever.

    They are removed from the store, in whatever state they are, and from the archive. The value is also
    replaced in notes, in the audit and in the filters of operations that have ended. Needs --why. Exits with
    4 if such letters are left elsewhere, or if letters could not be read.
    """
    if bool(ids) == bool(conditions):
        raise click.UsageError("Give either --task-id or --where.")
    if not why:
        raise click.UsageError("Erasing letters needs a reason; add --why TEXT.")
    erasure = _erasure(session, ids, conditions)
    found = _look(session, erasure)
    missing = sorted({*erasure.meant.ids}.difference(found.ids, found.parked))
    if not found.has_work:
        said = "Nothing was erased." if found.is_elsewhere else "No dead letters match."
        session.screen.show(said)
        _remark(session, *remarks(found, session.command))
        ctx.exit(PARTLY if found.is_elsewhere else FAILED if ids else DONE)
    if not yes:
        session.screen.show(*places_of(found))
    confirm(session, question(found), count=2, yes=yes)
    with removing(session, "dlq forget") as (lease, _pause):
        result = erasure.carry_out(found, lease, who=operator(), why=why)
    session.done(result_of(result))
    left = _look(session, erasure)
    redriven = [*of_redriven(found)]
    _remark(session, *redriven, *remarks(left, session.command), *of_short(erasure.meant.short))
    for task_id in missing:
        session.error(f"No letter has the task id {task_id}.")
    ctx.exit(PARTLY if missing or redriven or left.has_work or left.is_elsewhere else DONE)


def _erasure(session: Session, ids: Sequence[str], conditions: Sequence[str]) -> Erasure:
    if conditions:
        # The parameters of tasks say which positional argument has which name.
        session.load_tasks()
    try:
        return session.queue.erasure(ids=ids, where=conditions)
    except RepairError as error:
        raise click.UsageError(f"{error}.") from error


def _look(session: Session, erasure: Erasure) -> Found:
    try:
        return erasure.look()
    except OSError as error:
        raise CeleryDLQError(
            f"The spool {session.queue.spool.directory} cannot be read ({error.strerror or error}); check "
            "dlq_spool_dir, and run this as the workers' user."
        ) from error


def _remark(session: Session, *remarks: str) -> None:
    for remark in remarks:
        session.error(remark)
