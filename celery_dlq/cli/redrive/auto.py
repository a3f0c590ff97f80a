"""``dlq auto``: inspect, try, pause and resume automatic redrives and handlers, which workers run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from celery_dlq.cli.exits import DONE, PARTLY, NamingGroup, leave
from celery_dlq.cli.options import (
    format_option,
    limit_option,
    states_option,
    whole_number,
    why_option,
)
from celery_dlq.cli.screens.letter import changes_of, history_table, trial_parts
from celery_dlq.cli.screens.operation import Command
from celery_dlq.cli.screens.parts import Column, Facts, Field, Part, Table, table_of
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.errors import CeleryDLQError
from celery_dlq.model.automation import EVERY
from celery_dlq.model.handling import Handling, HandlingState
from celery_dlq.view import automations as view
from celery_dlq.view.automations import AutoWithStatus
from celery_dlq.view.fields import as_record
from celery_dlq.view.operations import given_orders

if TYPE_CHECKING:
    from celery_dlq.upkeep.automation.redriver import Look

#: Letters of a trial that a table names; the records name all.
_NAMED = 20

_FIELDS: Sequence[Field] = (
    (Column("NAME", rigid=True), lambda seen: seen.auto.name),
    (Column("KIND", rigid=True), lambda seen: seen.kind),
    (Column("STATE", rigid=True), lambda seen: seen.word),
    (Column("OWNER", from_width=80), lambda seen: seen.redrive and seen.redrive.owner),
    (Column("NEXT LOOK", rigid=True), lambda seen: seen.next_look),
    (Column("LETTERS"), lambda seen: seen.letters),
    (Column("HELD", right=True, rigid=True), lambda seen: seen.held),
)

_WAITING = (Column("LETTERS", right=True, rigid=True), Column("WAIT BECAUSE", fold=True))


def auto_parts(found: Sequence[AutoWithStatus], command: Command) -> list[Part]:
    """The screen of all automations, or a sentence if there are none."""
    if not found:
        return [f"{view.NO_AUTOMATIONS}; see: {command('help', 'auto-redrive')}"]
    return [
        table_of(_FIELDS, found),
        *(f"{one.auto.name}: {one.stopped}" for one in found if one.stopped),
    ]


def whole_auto_parts(
    seen: AutoWithStatus, latest: Sequence[Handling], command: Command
) -> list[Part]:
    """The screen of one automation."""
    redrive, try_it = seen.redrive, command("auto", "try", seen.auto.name)
    return [
        Facts("Automatic redrive" if redrive else "Handler", view.definition(seen.auto)),
        Facts("Conditions", view.conditions(redrive) if redrive else []),
        Facts("Orders", given_orders(redrive.orders) if redrive else []),
        Facts("State", view.state(seen)),
        history_table(latest) if latest else view.NO_LETTERS,
        *changes_of(latest),
        f"Next: after a fix: {_resume(seen, command)}"
        if seen.stopped
        else f"Next: see what it would do now: {try_it}",
    ]


def look_parts(look: Look, in_the_way: Sequence[str]) -> list[Part]:
    """The screen of a trial of an automatic redrive.

    :param in_the_way: why a worker would not do it now.
    """
    chosen = dict.fromkeys((one.task_id for one in look.letters), "")
    return [
        view.look_summary(look),
        *(f"A worker would not do it now: {why}." for why in in_the_way),
        Table(_WAITING, view.waiting(look)),
        _named_letters("WOULD BE SENT", chosen),
        _named_letters("WOULD BE HELD", look.held),
    ]


def _resume(seen: AutoWithStatus, command: Command) -> str:
    """The command that lets it run again: by its own name, or that of all."""
    own = seen.status.state is seen.state and seen.stopped.startswith("it is")
    return command("auto", "resume", *([seen.auto.name] if own else []))


def _named_letters(title: str, letters: Mapping[str, str]) -> Table:
    shown = list(letters.items())[:_NAMED]
    whole = (
        f"{title}, THE FIRST {len(shown)} OF {len(letters)}" if len(shown) < len(letters) else title
    )
    columns = [Column(whole, rigid=True, ids=True), Column("BECAUSE", fold=True)]
    if not any(letters.values()):
        return Table(columns[:1], [(task_id,) for task_id, _ in shown])
    return Table(columns, shown)


_Command = TypeVar("_Command", bound=Callable[..., Any])


def _maybe_name(command: _Command) -> _Command:
    return click.argument("name", metavar="[NAME]", required=False)(command)


@click.group("auto", cls=NamingGroup, alone="list")
def auto() -> None:
    """Inspect, try, pause and resume automatic redrives and handlers, which workers run."""


@auto.command("list")
@format_option
@pass_session
def list_autos(session: Session, form: str) -> None:
    """List automatic redrives and handlers, each in the order in which they come first."""
    found = _seen_all(session)
    session.screen.emit(form, [*map(view.auto_record, found)], *auto_parts(found, session.command))


@auto.command("show")
@click.argument("name", metavar="NAME")
@limit_option("Show at most this many of its latest letters.", default=20)
@format_option
@pass_session
def show(session: Session, name: str, limit: int, form: str) -> None:
    """Show one: its definition, its state, and the latest letters that it had."""
    seen = _seen(session, name)
    latest = session.store.automations.find(name=name, limit=limit).rows
    record = view.whole_auto_record(seen, latest)
    session.screen.emit(form, record, *whole_auto_parts(seen, latest, session.command))


@auto.command("try")
@click.argument("name", metavar="NAME")
@click.option(
    "--letter", "prefixes", metavar="ID", multiple=True,
    help="Call a handler with this letter; repeatable. Default: the letters that it would get next.",
)  # fmt: skip
@limit_option("Call a handler with at most this many letters.", default=20)
@format_option
@pass_session
def try_one(session: Session, name: str, prefixes: Sequence[str], limit: int, form: str) -> None:
    """Show what an automatic redrive would send, or call a handler in this process and show its verdicts.

    Nothing is sent or changed: only workers carry out verdicts. The function of a handler is called with real
    letters: what it does to other systems, it does.
    """
    session.load_tasks()
    seen = _seen(session, name)
    if seen.redrive is None:
        ids = [session.full_id(prefix) for prefix in prefixes]
        trials = list(session.queue.try_handler(name, ids=ids, limit=limit))
        session.screen.emit(form, [*map(as_record, trials)], *trial_parts(trials))
        leave(DONE if all(trial.verdict for trial in trials) else PARTLY)
        return
    if prefixes:
        raise click.UsageError(f"--letter is for handlers; {name} is an automatic redrive.")
    look = session.queue.try_auto(name)
    in_the_way = view.in_the_way(seen, session.screen.now)
    session.screen.emit(form, view.look_record(look, in_the_way), *look_parts(look, in_the_way))


@auto.command("run")
@click.argument("name", metavar="NAME")
@pass_session
def run(session: Session, name: str) -> None:
    """Let a worker look for the letters of an automatic redrive at once.

    All conditions, limits and times of the automatic redrive hold as usual.
    """
    seen = _seen(session, name)
    if seen.stopped:
        raise CeleryDLQError(
            f"{name!r} does not run: {seen.stopped}; to resume: {_resume(seen, session.command)}"
        )
    session.queue.run_auto(name, who=operator())
    closed = "; ".join(view.in_the_way(seen, session.screen.now))
    when = f"when its time comes ({closed})" if closed else "at once"
    see = session.command("auto", "history", name)
    session.done(f"A worker looks for the letters of {name} {when}. See: {see}")


@auto.command("pause")
@_maybe_name
@why_option
@pass_session
def pause(session: Session, name: str | None, why: str) -> None:
    """Stop an automatic redrive or a handler, or all of them, until it is resumed.

    A running operation of it is cancelled before its next batch. Messages that were sent stay sent; letters
    that were not sent stay dead.
    """
    has_changed = session.queue.pause_auto(name or EVERY, who=operator(), why=why)
    subject = view.subject(name)
    if not has_changed:
        session.done(f"{subject} paused already.")
        return
    session.done(f"{subject} paused now. {_running(session, name)}")
    named = [] if name in (None, EVERY) else [str(name)]
    session.done(f"To resume: {session.command('auto', 'resume', *named)}")


@auto.command("resume")
@_maybe_name
@why_option
@pass_session
def resume(session: Session, name: str | None, why: str) -> None:
    """Let one that was paused, or has suspended itself, run again.

    Without NAME, lifts the pause of all of them; one that was paused or suspended by its own name stays so.
    An operation that was cancelled stays cancelled: its letters are chosen again.
    """
    has_changed = session.queue.resume_auto(name or EVERY, who=operator(), why=why)
    state = "active now" if has_changed else "not stopped by this name"
    session.done(f"{view.subject(name)} {state}.")
    for seen in _seen_all(session):
        if seen.stopped and name in (None, seen.auto.name):
            session.say(f"{seen.auto.name} does not run: {seen.stopped}.")


@auto.command("history")
@_maybe_name
@click.option("--letter", "prefix", metavar="ID", help="Only this letter.")
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
    """List what automatic redrives and handlers did about letters, the newest first."""
    letter_id = None if prefix is None else session.full_id(prefix)
    find = session.store.automations.find
    page = find(name=name, letter_id=letter_id, states=states, limit=limit, after=after)
    if name is not None and not page.rows and not find(name=name, limit=1).rows:
        session.queue.automation_named(name)  # a misspelt name is an error
    changes = [] if letter_id is None else changes_of(page.rows)
    rows = [*map(as_record, page.rows)]
    session.screen.emit(form, rows, history_table(page.rows), *changes)
    session.say_next(page.next)


def _seen_all(session: Session) -> list[AutoWithStatus]:
    session.load_tasks()
    return view.autos_with_status(session.store, session.queue.all_automations, session.screen.now)


def _seen(session: Session, name: str) -> AutoWithStatus:
    """The automation ``name``.

    :raises UnknownAutomation: the app has none with this name.
    """
    auto = session.queue.automation_named(name)
    return view.auto_with_status(session.store, auto, session.screen.now)


def _running(session: Session, name: str | None) -> str:
    """A sentence about the operations that run now."""
    of_name = None if name in (None, EVERY) else name
    running = session.store.automations.unfinished(of_name)
    if not running:
        return (
            "No operation is running." if of_name is None else "None of its operations is running."
        )
    return (
        f"Cancelled before the next batch: operation {', '.join(running)}. Letters that were not sent stay "
        "dead."
    )
