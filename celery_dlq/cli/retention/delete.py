"""``dlq delete``: removes letters for ever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from celery_dlq.cli.exits import DONE, PARTLY
from celery_dlq.cli.options import TAKEABLE, filters, selection_options, why_option
from celery_dlq.cli.selection import LETTERS, confirm_act, select
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.model.states import CLOSED_STATES, State
from celery_dlq.store.base import Filter
from celery_dlq.view import times
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
    wanted = select(session, ids, wanted, everything=everything)
    wanted = replace(wanted, states=_states(wanted, is_open=is_open, why=why))
    failed = confirm_act(session, "Delete {} for ever?", wanted, yes=yes, can_be_undone=False)
    done = session.store.deleting.delete(wanted, who=operator(), why=why, now=times.utc_now())
    session.done(f"Deleted {counted(done, *LETTERS)}.")
    click.get_current_context().exit(PARTLY if failed else DONE)


def _states(wanted: Filter, *, is_open: bool, why: str) -> frozenset[State]:
    """The states of the letters to delete.

    :raises click.UsageError: open letters would be deleted by mistake or without a reason.
    """
    still_open = wanted.states - CLOSED_STATES
    if still_open and not is_open:
        named = " and ".join(sorted(still_open))
        raise click.UsageError(
            f"Letters that are {named} are open; add --open and --why to lose them."
        )
    if not is_open:
        return wanted.states or CLOSED_STATES
    if not why:
        raise click.UsageError("--open needs a reason; add --why TEXT.")
    if wanted.states & CLOSED_STATES:
        raise click.UsageError("--open is about open letters; delete closed ones without it.")
    return wanted.states or frozenset({State.DEAD})
