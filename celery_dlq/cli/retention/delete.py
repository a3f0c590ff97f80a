"""``dlq delete``: removes letters for ever."""

from __future__ import annotations

from collections.abc import Sequence

import click

from celery_dlq.api.retention import check_reason, deletable
from celery_dlq.cli.exits import DONE, PARTLY
from celery_dlq.cli.options import TAKEABLE, filters, selection_options, why_option
from celery_dlq.cli.selection import LETTERS, confirm_act, select
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.errors import OpenLetters
from celery_dlq.model.states import CLOSED_STATES
from celery_dlq.store.base import Filter
from celery_dlq.view.text import counted

_CLOSED = tuple(sorted(CLOSED_STATES))


@click.command("delete")
@filters(states=(*_CLOSED, *TAKEABLE), default="closed letters")
@click.option(
    "--open",
    "is_open",
    is_flag=True,
    help="Delete open letters instead of closed ones; their messages are lost. Needs --why.",
)
@why_option
@selection_options
@pass_session
def delete(
    session: Session,
    ids: Sequence[str],
    everything: bool,
    yes: bool,
    wanted: Filter,
    is_open: bool,
    why: str,
) -> None:
    """Delete closed letters for ever.

    They go with their messages and attempts. The counts of arrivals stay, and so do the audit and the results
    of redrives.
    """
    wanted = _checked(select(session, ids, wanted, everything=everything), is_open=is_open, why=why)
    failed = confirm_act(session, "Delete {} for ever?", wanted, yes=yes, can_be_undone=False)
    done = session.queue.delete(wanted, who=operator(), why=why, is_open=is_open)
    session.done(f"Deleted {counted(done, *LETTERS)}.")
    click.get_current_context().exit(PARTLY if failed else DONE)


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
