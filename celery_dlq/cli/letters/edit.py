"""``dlq edit``: changes the message of a letter in an editor."""

from __future__ import annotations

import os
import sys

import click

from celery_dlq.cli.completion import complete_letter
from celery_dlq.cli.exits import one_line
from celery_dlq.cli.options import why_option
from celery_dlq.cli.screens.render import Block, is_terminal
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.errors import RepairError
from celery_dlq.redrive.edit import read_text, text_to_edit


@click.command("edit")
@click.argument("task_id", metavar="ID", shell_complete=complete_letter)
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
