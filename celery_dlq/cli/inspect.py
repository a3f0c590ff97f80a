"""Commands that look and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from celery_dlq.cli.explain import (
    explain_letter,
    explain_traceback,
    explain_type,
    names_type,
    read_traceback,
)
from celery_dlq.cli.letter_table import letter_table
from celery_dlq.cli.letter_view import letter_parts
from celery_dlq.cli.options import filters, format_option, limit_option, operation_option
from celery_dlq.cli.selection import of_operation
from celery_dlq.cli.session import Session
from celery_dlq.cli.stats_view import stats_parts
from celery_dlq.store.base import Filter
from celery_dlq.view import records


@click.command("list")
@filters()
@operation_option
@limit_option("Letters of a page.", default=50)
@click.option("--after", metavar="CURSOR", help="Continue behind the page that named this cursor.")
@format_option
@click.pass_obj
def list_letters(
    cli: Any, wanted: Filter, operation_id: str | None, limit: int, after: str | None, form: str
) -> None:
    """List dead letters, newest failure first."""
    session = Session(cli)
    wanted = of_operation(session, wanted, operation_id)
    page = session.store.find(wanted, limit=limit, after=after)
    rows = [records.letter_record(letter) for letter in page.letters]
    session.screen.emit(form, rows, letter_table(page.letters))
    if page.next:
        session.say(f"More: add --after {page.next}")


@click.command("show")
@click.argument("task_id", metavar="ID")
@format_option
@click.pass_obj
def show(cli: Any, task_id: str, form: str) -> None:
    """Show one letter whole, why it died first.

    Also how it was redriven, and how its message was changed. ID is the task id or a beginning of it
    that no other letter has.
    """
    session = Session(cli)
    letter = session.letter(task_id)
    redrives = session.store.sendings_of(letter.task_id)
    changes = session.store.changes_of(letter.task_id)
    session.screen.emit(
        form,
        records.whole_letter_record(letter, redrives, changes),
        *letter_parts(letter, redrives, changes, session.command),
    )


@click.command("stats")
@format_option
@click.pass_obj
def stats(cli: Any, form: str) -> None:
    """Show depth, arrivals and ages."""
    session = Session(cli)
    found = session.store.stats(session.screen.now)
    record = records.stats_rows(found) if form == "csv" else records.stats_record(found)
    session.screen.emit(form, record, *stats_parts(found, drawn=session.screen.drawn))


@click.command("explain")
@click.argument("what", metavar="ID|EXCEPTION|FILE")
@format_option
@click.pass_obj
def explain(cli: Any, what: str, form: str) -> None:
    """Say which rule decided, and why.

    The name of a file, and - for standard input, stand for a traceback: its last one is judged by type,
    message and chain, and what no text tells is named. A dotted name, such as
    requests.ConnectionError, and a builtin, such as ValueError, are taken for exception types, all else
    for the beginning of a letter's id.
    """
    session = Session(cli)
    if what == "-" or Path(what).is_file():
        written = read_traceback(what)
        session.load_tasks()  # and with them most of the classes that a traceback names
        record, parts = explain_traceback(written, session.queue.classifier)
    elif names_type(what):
        record, parts = explain_type(what, session.queue.classifier)
    else:
        record, parts = explain_letter(session.letter(what), session.queue.classifier)
    session.screen.emit(form, record, *parts)
