"""The command that changes the message of a letter in an editor."""

from __future__ import annotations

import sys
from typing import Any

import click

from celery_dlq.cli.exits import one_line
from celery_dlq.cli.render import Block, is_terminal
from celery_dlq.cli.session import Session, operator
from celery_dlq.errors import RepairError
from celery_dlq.redrive.edit import read_text, text_to_edit


@click.command("edit")
@click.argument("task_id", metavar="ID")
@click.pass_obj
def edit(cli: Any, task_id: str) -> None:
    """Change the arguments and headers of a dead letter in $EDITOR.

    They are shown as JSON, and as they are: nothing is redacted. What was there before stays in the
    letter's history. Nothing is sent.
    """
    session = Session(cli)
    letter = session.letter(task_id)
    text = text_to_edit(cli.app, letter)
    while True:
        edited = _edited(text)
        if edited is None or edited == text:
            raise RepairError(
                "Nothing was changed; save the file with other contents to change it."
            )
        try:
            diff = session.queue.edit(letter.task_id, who=operator(), **read_text(edited))
        except RepairError as error:
            _ask_again(error)
            text = edited
        else:
            session.screen.show(Block("Changed", diff))
            session.done(f"Send it back: {session.command('redrive', letter.task_id)}")
            return


def _edited(text: str) -> str | None:
    """What the editor makes of ``text``; None when it leaves the file as it is.

    :raises RepairError: the file is gone, or cannot be made.
    """
    try:
        return click.edit(text, extension=".json")
    except OSError as error:
        raise RepairError(
            f"Nothing was changed: what was edited cannot be read ({error}); "
            "let the editor save the file that it was given."
        ) from error


def _ask_again(error: RepairError) -> None:
    """Ask whether to go on with the editor.

    :raises RepairError: nobody is there to ask, or they have had enough.
    """
    if not is_terminal(sys.stdin) or not click.confirm(
        f"{one_line(str(error))}. Edit again?", err=True
    ):
        raise error
