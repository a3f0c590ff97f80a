"""``dlq handlers``: what repair handlers did, and what they would do."""

from __future__ import annotations

from collections.abc import Sequence

import click

from celery_dlq.cli.completion import complete_letter
from celery_dlq.cli.exits import DONE, PARTLY, NamingGroup, leave
from celery_dlq.cli.options import format_option, limit_option, states_option, whole_number
from celery_dlq.cli.screens.letter import (
    changes_of,
    handler_parts,
    handler_table,
    history_table,
    trial_parts,
)
from celery_dlq.cli.session import Session, pass_session
from celery_dlq.model.handling import HandlingState
from celery_dlq.view import records


@click.group("handlers", cls=NamingGroup, alone="list")
def handlers() -> None:
    """Inspect and try repair handlers, which workers run."""


@handlers.command("list")
@format_option
@pass_session
def list_handlers(session: Session, form: str) -> None:
    """List handlers, in the order in which they get letters."""
    session.load_tasks()
    known = session.queue.handlers
    counts = session.store.handlings.count(known) if known else {}
    found = [(handler, counts[name]) for name, handler in known.items()]
    rows = [records.handler_record(handler, numbers) for handler, numbers in found]
    session.screen.emit(form, rows, handler_table(found))


@handlers.command("show")
@click.argument("name", metavar="NAME")
@limit_option("Show at most this many of its latest letters.", default=20)
@format_option
@pass_session
def show(session: Session, name: str, limit: int, form: str) -> None:
    """Show one handler, and the latest letters that it had."""
    session.load_tasks()
    handler = session.queue.handler_named(name)
    counts = session.store.handlings.count([name])[name]
    latest = session.store.handlings.find(handler=name, limit=limit).rows
    session.screen.emit(
        form,
        records.whole_handler_record(handler, counts, latest),
        *handler_parts(handler, counts, latest),
        *changes_of(latest),
    )


@handlers.command("try")
@click.argument("name", metavar="NAME")
@click.option(
    "--letter", "prefixes", metavar="ID", multiple=True, shell_complete=complete_letter,
    help="Call it with this letter; repeatable. Default: the letters that it would get next.",
)  # fmt: skip
@limit_option("Call it with at most this many letters.", default=20)
@format_option
@pass_session
def try_one(session: Session, name: str, prefixes: Sequence[str], limit: int, form: str) -> None:
    """Call a handler in this process, and show its verdicts.

    Only workers carry out verdicts. The function itself is called with real letters: what it does to other
    systems, it does.
    """
    session.load_tasks()
    ids = [session.full_id(prefix) for prefix in prefixes]
    trials = list(session.queue.try_handler(name, ids=ids, limit=limit))
    session.screen.emit(form, [*map(records.as_record, trials)], *trial_parts(trials))
    leave(DONE if all(trial.verdict for trial in trials) else PARTLY)


@handlers.command("history")
@click.option("--handler", "name", metavar="NAME", help="Only this handler.")
@click.option(
    "--letter", "prefix", metavar="ID", shell_complete=complete_letter, help="Only this letter."
)
@states_option(HandlingState, "a state of a handling", "the handlings")
@limit_option("Handlings per page.", default=50)
@click.option(
    "--after", type=whole_number(), metavar="CURSOR",
    help="Continue after the page that printed this cursor.",
)  # fmt: skip
@format_option
@pass_session
def history(
    session: Session,
    name: str | None,
    prefix: str | None,
    states: frozenset[HandlingState],
    limit: int,
    after: int | None,
    form: str,
) -> None:
    """List what handlers did about letters, the newest first."""
    letter_id = None if prefix is None else session.full_id(prefix)
    page = session.store.handlings.find(
        handler=name, letter_id=letter_id, states=states,
        limit=limit, after=after,
    )  # fmt: skip
    if name is not None and not page.rows and not session.store.handlings.find(handler=name).rows:
        session.load_tasks()
        session.queue.handler_named(name)  # a misspelt name is an error
    changes = [] if letter_id is None else changes_of(page.rows)
    rows = [*map(records.as_record, page.rows)]
    session.screen.emit(form, rows, history_table(page.rows), *changes)
    session.say_next(page.next)
