"""Commands that close letters, open them again, and let parked retries run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from celery_dlq.cli.exits import DONE, FAILED, PARTLY
from celery_dlq.cli.letter_table import letter_table
from celery_dlq.cli.options import TAKEABLE, filters, selection_options
from celery_dlq.cli.selection import confirm, left_alone, select
from celery_dlq.cli.session import Session, operator
from celery_dlq.states import State
from celery_dlq.store.base import Filter
from celery_dlq.view import times
from celery_dlq.view.text import counted

#: Letters shown before an act on them.
_EXAMPLES = 10

#: What an act is about: one of them, and many.
Things = tuple[str, str]
_LETTERS, _RETRIES = ("dead letter", "dead letters"), ("parked retry", "parked retries")


@click.command("discard")
@filters(states=(*TAKEABLE, State.PARKED))
@click.option(
    "--why", required=True, metavar="TEXT", help="Why nobody needs them; kept with the letters."
)
@selection_options
@click.pass_obj
def discard(
    cli: Any, ids: Sequence[str], everything: bool, yes: bool, wanted: Filter, why: str
) -> None:
    """Close letters for good, with a reason. `undiscard` opens them again."""
    if not why.strip():
        raise click.UsageError("--why is empty; say why nobody needs these letters.")
    session = Session(cli)
    wanted = select(session, ids, wanted, everything=everything)
    wanted = replace(wanted, states=wanted.states or frozenset({State.DEAD}))
    failed = _confirm_act(session, "Discard", wanted, yes=yes)
    done = session.store.discard(wanted, who=operator(), why=why, now=times.utc_now())
    session.done(f"Discarded {counted(done, *_LETTERS)}. To undo: {_undo(session, wanted)}")
    click.get_current_context().exit(PARTLY if failed else DONE)


@click.command("undiscard")
@filters(states=())
@selection_options
@click.pass_obj
def undiscard(cli: Any, ids: Sequence[str], everything: bool, yes: bool, wanted: Filter) -> None:
    """Open discarded letters again."""
    session = Session(cli)
    wanted = select(session, ids, wanted, everything=everything)
    wanted = replace(wanted, states=frozenset({State.DISCARDED}))
    failed = _confirm_act(session, "Open again", wanted, yes=yes)
    done = session.store.undiscard(wanted, who=operator(), now=times.utc_now())
    session.done(f"Opened {counted(done, *_LETTERS)} again. See: {session.command('list')}")
    click.get_current_context().exit(PARTLY if failed else DONE)


@click.command("release")
@filters(states=())
@selection_options
@click.pass_obj
def release(cli: Any, ids: Sequence[str], everything: bool, yes: bool, wanted: Filter) -> None:
    """Let parked retries run now instead of when they are due.

    A worker of this app sends them, within seconds. Also for those that were parked on a broker that
    the app has moved away from.
    """
    session = Session(cli)
    wanted = select(session, ids, wanted, everything=everything)
    wanted = replace(wanted, states=frozenset({State.PARKED}))
    failed = _confirm_act(session, "Release", wanted, yes=yes, things=_RETRIES)
    done = session.queue.release(wanted, who=operator())
    others = session.command("list", "--state", "parked")
    session.done(f"A worker sends {counted(done, *_RETRIES)} now. The others: {others}")
    click.get_current_context().exit(PARTLY if failed else DONE)


def _confirm_act(
    session: Session, verb: str, wanted: Filter, *, yes: bool, things: Things = _LETTERS
) -> bool:
    """Count, show and confirm; ends the command when nothing matches. Returns whether letters that
    were named by id are left alone."""
    failed = left_alone(session, wanted, wanted.states) > 0
    count = session.store.count(wanted)
    if not count:
        if not failed:
            session.screen.show(f"No {things[1]} match.")
        click.get_current_context().exit(FAILED if failed or wanted.ids else DONE)
    if count > 1 and not yes:
        _show_some(session, wanted, count)
    confirm(session, f"{verb} {counted(count, *things)}?", count=count, yes=yes)
    return failed


def _show_some(session: Session, wanted: Filter, count: int) -> None:
    found = session.store.find(wanted, limit=_EXAMPLES).letters
    more = [f"… and {counted(count - len(found), *_LETTERS)} more"] if count > len(found) else []
    session.screen.show(letter_table(found), *more)


def _undo(session: Session, wanted: Filter) -> str:
    if len(wanted.ids) == 1:
        return session.command("undiscard", *wanted.ids)
    return f"{session.command('undiscard')} with the same ids or filters"
