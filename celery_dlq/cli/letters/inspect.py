"""``dlq list``, ``show``, ``stats`` and ``explain``: read-only commands."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import click

from celery_dlq.cli.completion import complete_letter
from celery_dlq.cli.letters.explain import (
    explain_letter,
    explain_traceback,
    explain_type,
    names_type,
    read_traceback,
)
from celery_dlq.cli.options import filters, format_option, limit_option, operation_option
from celery_dlq.cli.screens.letter import letter_parts, letter_table
from celery_dlq.cli.screens.render import Part
from celery_dlq.cli.screens.stats import keeping_parts, lost_parts, stats_parts
from celery_dlq.cli.selection import checked, of_operation
from celery_dlq.cli.session import Session, pass_session, pass_showing_session
from celery_dlq.store.base import Filter, Page
from celery_dlq.view import records, times
from celery_dlq.view.letter.handlings import HANDLINGS_SHOWN
from celery_dlq.view.stats.keeping import keeping_record, keeping_rows
from celery_dlq.view.stats.lost import losses_of, lost_record, lost_rows
from celery_dlq.view.stats.replica import replica_record, replica_text

#: Seconds of a search that reads letters one by one, before a person sees what it has found so far.
_PATIENCE_S = 10.0


@click.command("list")
@filters()
@operation_option
@limit_option("Letters per page.", default=50)
@click.option("--after", metavar="CURSOR", help="Continue after the page that printed this cursor.")
@format_option
@pass_showing_session
def list_letters(
    session: Session,
    wanted: Filter,
    operation_id: str | None,
    limit: int,
    after: str | None,
    form: str,
) -> None:
    """List dead letters, newest failure first."""
    wanted = of_operation(session, wanted, operation_id)
    wanted = checked(session, wanted)
    # A program needs whole pages, and can wait.
    patience_s = _PATIENCE_S if form == "table" else None
    page = session.store.letters.find(wanted, limit=limit, after=after, patience_s=patience_s)
    rows = [
        records.letter_record(letter, owner=session.queue.owner_of(letter.route))
        for letter in page.letters
    ]
    session.screen.emit(form, rows, *_listed(page))
    if page.searched_to:
        session.say(
            f"Searched back to {times.iso(page.searched_to)}; older letters may also match. To continue the "
            f"search, add: --after {page.next}"
        )
    elif page.next:
        session.say(f"For the next page, add: --after {page.next}")


def _listed(page: Page) -> Iterator[Part]:
    if page.searched_to and not page.letters:
        yield "No matching letters found so far."
    else:
        yield letter_table(page.letters)
    if page.further:
        yield "Further back; there may be more letters before these and between them:"
        yield letter_table(page.further)


@click.command("show")
@click.argument("task_id", metavar="ID", shell_complete=complete_letter)
@format_option
@pass_showing_session
def show(session: Session, task_id: str, form: str) -> None:
    """Show one letter in full.

    Starts with the reason why it died; includes its redrives, changes of its message, and what handlers did.
    ID is a task id, or a prefix of it that no other letter has.
    """
    letter = session.letter(task_id)
    redrives = session.store.sendings.of_letter(letter.task_id)
    changes = session.store.edits.of_letter(letter.task_id)
    handlings = session.store.handlings.find(letter_id=letter.task_id, limit=HANDLINGS_SHOWN).rows
    tickets = session.store.tickets.of_groups([letter.fingerprint]).get(letter.fingerprint, ())
    held = session.store.auto_redrives.held([letter.task_id]).get(letter.task_id)
    owner = session.queue.owner_of(letter.route)
    record = records.whole_letter_record(letter, redrives, changes, owner=owner)
    session.screen.emit(
        form,
        {**record, **records.handled_record(handlings, tickets), "held": records.held_record(held)},
        *letter_parts(
            letter, redrives, changes, (handlings, tickets), session.command, owner=owner, held=held
        ),
    )


@click.command("stats")
@format_option
@pass_showing_session
def stats(session: Session, form: str) -> None:
    """Show the numbers of open, arriving and closed letters.

    Includes ages, what expires next, and the archive. The numbers of closed letters are those of the last
    round of retention; `retention plan` counts them now. About killed workers, it shows lost letters, what
    workers of all machines report, and the files of this machine.
    """
    now, drawn = session.screen.now, session.screen.drawn
    found, kept = session.store.monitoring.stats(now), session.store.reports.keeping()
    losses, following = losses_of(session.queue), session.store.following()
    kept_record, losses_record = keeping_record(kept, now), lost_record(losses)
    record = (
        [*records.stats_rows(found), *keeping_rows(kept_record), *lost_rows(losses_record)]
        if form == "csv"
        else {
            **records.stats_record(found),
            **kept_record,
            "recorder": losses_record,
            "read_replica": replica_record(following),
        }
    )
    parts = [*stats_parts(found, drawn=drawn), *lost_parts(losses), *keeping_parts(kept, now)]
    session.screen.emit(form, record, *parts, *filter(None, [replica_text(following)]))


@click.command("explain")
@click.argument("what", metavar="ID|EXCEPTION|FILE", shell_complete=complete_letter)
@format_option
@pass_session
def explain(session: Session, what: str, form: str) -> None:
    """Show which rule gave a verdict, and why.

    The argument is the ID of a letter; an exception type, such as ValueError or requests.ConnectionError; or
    a FILE with a traceback, with - for standard input. The last traceback of the file is judged by type,
    message and chain. The output lists the evidence that a text cannot show.
    """
    if what == "-" or _is_file(what):
        written = read_traceback(what)
        session.load_tasks()  # this imports most of the classes that a traceback names
        record, parts = explain_traceback(written, session.queue.classifier)
    elif names_type(what):
        record, parts = explain_type(what, session.queue.classifier)
    else:
        record, parts = explain_letter(session.letter(what), session.queue.classifier)
    session.screen.emit(form, record, *parts)


def _is_file(name: str) -> bool:
    # A name that is too long for a file raises.
    with contextlib.suppress(OSError, ValueError):
        return Path(name).is_file()
    return False
