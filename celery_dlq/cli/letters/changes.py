"""``dlq discard``, ``unpark`` and ``edit``: change letters by hand."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from celery_dlq.cli.exits import DONE, FAILED, PARTLY, HeadedCommand, leave, one_line
from celery_dlq.cli.options import (
    MAIN_FILTERS,
    TAKEABLE,
    Chosen,
    filters,
    selection_options,
    why_option,
)
from celery_dlq.cli.screens.parts import Block
from celery_dlq.cli.screens.render import is_terminal
from celery_dlq.cli.selection import LETTERS, confirm_act, select
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.errors import RepairError
from celery_dlq.model.states import State
from celery_dlq.redrive.letter.edit import read_text, text_to_edit
from celery_dlq.store.base import Filter
from celery_dlq.view import times
from celery_dlq.view.text import counted

_PARKED = ("parked message", "parked messages")

#: Ids that are written out in a command.
_NAMED = 10


@click.command("discard", cls=HeadedCommand)
@filters(states=(*TAKEABLE, State.PARKED))
@why_option
@click.option("--undo", is_flag=True, help="Reopen letters that were discarded.")
@selection_options
@pass_session
def discard(session: Session, chosen: Chosen, wanted: Filter, why: str, undo: bool) -> None:
    """Close letters by hand, with a reason."""
    if undo:
        _undiscard(session, chosen, wanted, why)
        return
    if not why:
        raise click.UsageError("A letter is discarded with a reason; add: --why TEXT")
    wanted = select(session, chosen, wanted, wanted.wanted_states & {State.DEAD, State.PARKED})
    failed = confirm_act(session, "Discard {}?", wanted, chosen)
    named = _named(session, wanted)
    done = session.store.closing.discard(wanted, who=operator(), why=why, now=times.utc_now())
    if not done:
        session.error(
            "Nothing was discarded, because the letters are being sent or were closed in the meantime."
        )
        leave(FAILED)
    session.done(f"Discarded {counted(done, *LETTERS)}. {_how_to_reopen(session, named, done)}")
    leave(PARTLY if failed else DONE)


def _undiscard(session: Session, chosen: Chosen, wanted: Filter, why: str) -> None:
    if wanted.states or why:
        raise click.UsageError("--undo reopens discarded letters; leave --state and --why out.")
    wanted = select(session, chosen, wanted, {State.DISCARDED})
    failed = confirm_act(session, "Reopen {}?", wanted, chosen)
    done = session.store.closing.undiscard(wanted, who=operator(), now=times.utc_now())
    session.done(f"Reopened {counted(done, *LETTERS)}. See: {session.command('list')}")
    leave(PARTLY if failed else DONE)


@click.command("unpark", cls=HeadedCommand)
@filters(only=MAIN_FILTERS, states=())
@selection_options
@pass_session
def unpark(session: Session, chosen: Chosen, wanted: Filter) -> None:
    """Send parked messages now, before they are due.

    A worker of this app sends them within seconds, even if they were parked on a broker that the app no
    longer uses, or could not be sent to another address of its broker.
    """
    wanted = select(session, chosen, wanted, {State.PARKED})
    failed = confirm_act(session, "Send {} now?", wanted, chosen, things=_PARKED)
    done = session.queue.unpark(wanted, who=operator())
    if not done:
        session.error(
            "Nothing was changed, because the messages are being sent, or may have been sent."
        )
        leave(FAILED)
    others = session.command("list", "--state", "parked")
    session.done(f"A worker will send {counted(done, *_PARKED)} now. See the others: {others}")
    leave(PARTLY if failed else DONE)


def _named(session: Session, wanted: Filter) -> Sequence[str]:
    """The ids that a command writes out, without letters that are left alone; none if there are too many."""
    if not 0 < len(wanted.ids) <= _NAMED:
        return ()
    found = {letter.task_id for letter in session.letters(wanted)}
    return [task_id for task_id in wanted.ids if task_id in found]


def _how_to_reopen(session: Session, named: Sequence[str], done: int) -> str:
    """The command that reopens these letters, by their ids: a filter would also find letters that others
    have discarded."""
    what = "it" if done == 1 else "them" if named else "one"
    return f"To reopen {what}: {session.command('discard', '--undo', *(named or ('ID',)))}"


@click.command("edit")
@click.argument("task_id", metavar="ID")
@why_option
@pass_session
def edit(session: Session, task_id: str, why: str) -> None:
    """Edit the arguments and headers of a dead letter in $EDITOR.

    The editor shows them as JSON, without redaction. The letter's history keeps the previous values. Nothing
    is sent.
    """
    _need_editor()
    letter = session.letter_to_change(task_id)
    text = text_to_edit(session.cli.app, letter)
    while True:
        edited = _edited(text)
        if edited is None or edited == text:
            raise RepairError(
                "Nothing was changed: the file was not modified. Save it with other contents."
            )
        try:
            diff = session.queue.edit(letter.task_id, who=operator(), why=why, **read_text(edited))
        except RepairError as error:
            _ask_again(error)
            text = edited
        else:
            session.screen.show(Block("Changed", diff))
            session.done(f"To send it back, run: {session.command('redrive', letter.task_id)}")
            return


def _need_editor() -> None:
    """Refuse to start an editor that would wait for input forever.

    :raises click.UsageError: there is no terminal, and no editor is set.
    """
    if is_terminal(sys.stdin) and is_terminal(sys.stdout):
        return
    if not any(os.environ.get(name, "").strip() for name in ("VISUAL", "EDITOR")):
        raise click.UsageError(
            "There is no terminal to edit on, and neither VISUAL nor EDITOR is set; use a terminal, set "
            "EDITOR to a program that changes the given file, or use: redrive --set PATH=VALUE"
        )


def _edited(text: str) -> str | None:
    """The edited ``text``; None if the editor did not save the file.

    :raises RepairError: the file cannot be created, or is gone afterwards.
    """
    try:
        return click.edit(text, extension=".json")
    except OSError as error:
        raise RepairError(
            f"Nothing was changed: the edited file cannot be read ({error}); let the editor save the file "
            "under the given name."
        ) from error


def _ask_again(error: RepairError) -> None:
    """Ask whether to open the editor again.

    :raises RepairError: the answer is no, or there is no terminal to ask on.
    """
    if not is_terminal(sys.stdin) or not click.confirm(
        f"{one_line(str(error))}. Edit again?", err=True
    ):
        raise error
