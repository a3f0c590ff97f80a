"""``dlq discard``, ``undiscard`` and ``release``: close letters, reopen them, and run parked retries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from celery_dlq.cli.exits import DONE, FAILED, PARTLY
from celery_dlq.cli.options import TAKEABLE, filters, selection_options
from celery_dlq.cli.selection import LETTERS, confirm_act, select
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.view import times
from celery_dlq.view.text import counted

_RETRIES = ("parked retry", "parked retries")

#: Ids that are written out in a command.
_NAMED = 10


@click.command("discard")
@filters(states=(*TAKEABLE, State.PARKED))
@click.option("--why", required=True, metavar="TEXT", help="Reason, kept with the letters.")
@selection_options
@pass_session
def discard(
    session: Session, ids: Sequence[str], everything: bool, yes: bool, wanted: Filter, why: str
) -> None:
    """Close letters by hand, with a reason.

    `undiscard` reopens them.
    """
    wanted = select(session, ids, wanted, everything=everything)
    wanted = replace(wanted, states=wanted.states or frozenset({State.DEAD}))
    failed = confirm_act(session, "Discard {}?", wanted, yes=yes)
    named = _named(session, wanted)
    done = session.store.closing.discard(wanted, who=operator(), why=why, now=times.utc_now())
    if not done:
        session.error(
            "Nothing was discarded, because the letters are being sent or were closed in the meantime."
        )
        click.get_current_context().exit(FAILED)
    session.done(f"Discarded {counted(done, *LETTERS)}. {_how_to_reopen(session, named, done)}")
    click.get_current_context().exit(PARTLY if failed else DONE)


@click.command("undiscard")
@filters(states=())
@selection_options
@pass_session
def undiscard(
    session: Session, ids: Sequence[str], everything: bool, yes: bool, wanted: Filter
) -> None:
    """Reopen discarded letters."""
    wanted = select(session, ids, wanted, everything=everything)
    wanted = replace(wanted, states=frozenset({State.DISCARDED}))
    failed = confirm_act(session, "Reopen {}?", wanted, yes=yes)
    done = session.store.closing.undiscard(wanted, who=operator(), now=times.utc_now())
    session.done(f"Reopened {counted(done, *LETTERS)}. See: {session.command('list')}")
    click.get_current_context().exit(PARTLY if failed else DONE)


@click.command("release")
@filters(states=())
@selection_options
@pass_session
def release(
    session: Session, ids: Sequence[str], everything: bool, yes: bool, wanted: Filter
) -> None:
    """Run parked retries now, before they are due.

    A worker of this app sends them within seconds, even if they were parked on a broker that the app no
    longer uses.
    """
    wanted = select(session, ids, wanted, everything=everything)
    wanted = replace(wanted, states=frozenset({State.PARKED}))
    failed = confirm_act(session, "Release {}?", wanted, yes=yes, things=_RETRIES)
    done = session.queue.release(wanted, who=operator())
    others = session.command("list", "--state", "parked")
    session.done(f"A worker will send {counted(done, *_RETRIES)} now. See the others: {others}")
    click.get_current_context().exit(PARTLY if failed else DONE)


def _named(session: Session, wanted: Filter) -> Sequence[str]:
    """The ids to write out, without those of letters that are left alone; none if they are many."""
    if not 0 < len(wanted.ids) <= _NAMED:
        return ()
    found = {letter.task_id for letter in session.letters(wanted)}
    return [task_id for task_id in wanted.ids if task_id in found]


def _how_to_reopen(session: Session, named: Sequence[str], done: int) -> str:
    """A filter would also find letters that other people have discarded."""
    what = "it" if done == 1 else "them" if named else "one"
    return f"To reopen {what}: {session.command('undiscard', *(named or ('ID',)))}"
