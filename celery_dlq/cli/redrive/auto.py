"""``dlq auto``: inspect, try, pause and resume automatic redrives, which workers run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from celery_dlq.cli.exits import NamingGroup
from celery_dlq.cli.options import format_option, limit_option, why_option
from celery_dlq.cli.screens.operation import Command
from celery_dlq.cli.screens.parts import Column, Facts, Field, Part, Table, table_of
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.errors import CeleryDLQError
from celery_dlq.model.auto_redrive import EVERY, AutoMode
from celery_dlq.view import auto_redrives as view
from celery_dlq.view.auto_redrives import SeenAuto, SeenRun
from celery_dlq.view.operations import given_orders, outcome_text

if TYPE_CHECKING:
    from celery_dlq.upkeep.auto_redrive.runner import Look

#: Letters of a dry run that a table names; the records name all.
_NAMED = 20

_FIELDS: Sequence[Field] = (
    (Column("NAME", rigid=True), lambda seen: seen.auto.name),
    (Column("MODE", rigid=True), lambda seen: AutoMode(seen.auto.mode).value),
    (Column("STATE", rigid=True), lambda seen: seen.state.value),
    (Column("OWNER", from_width=80), lambda seen: seen.auto.owner),
    (Column("LAST LOOK", from_width=100), lambda seen: seen.status.looked_at),
    (Column("NEXT LOOK", rigid=True), lambda seen: seen.next_look),
    (Column("LAST RUN", rigid=True), lambda seen: seen.last_run and seen.last_run.at),
    (Column("HELD", right=True, rigid=True), lambda seen: seen.held),
)

_RUN_FIELDS: Sequence[Field] = (
    (Column("RUN", rigid=True), lambda seen: seen.run.id),
    (Column("NAME", rigid=True), lambda seen: seen.run.name),
    (Column("MODE", rigid=True), lambda seen: seen.run.mode.value),
    (Column("AT", rigid=True), lambda seen: seen.run.at),
    (Column("LETTERS", right=True, rigid=True), lambda seen: seen.run.letters),
    (Column("STATE", rigid=True), lambda seen: seen.operation and seen.operation.state.value),
    (Column("OUTCOMES"), lambda seen: seen.operation and outcome_text(seen.operation.counts)),
    (Column("CAUSE"), lambda seen: seen.operation and seen.operation.cause),
)

_WAITING = (Column("LETTERS", right=True, rigid=True), Column("WAIT BECAUSE", fold=True))


def auto_parts(found: Sequence[SeenAuto], command: Command) -> list[Part]:
    """The screen of all automatic redrives, or a sentence if there are none."""
    if not found:
        how = command("help", "auto-redrive")
        return [f"{view.NO_AUTO_REDRIVES}; see: {how}"]
    return [
        table_of(_FIELDS, found),
        *(f"{one.auto.name}: {one.stopped}" for one in found if one.stopped),
    ]


def whole_auto_parts(seen: SeenAuto, runs: Sequence[SeenRun], command: Command) -> list[Part]:
    """The screen of one automatic redrive."""
    parts: list[Part] = [
        Facts("Automatic redrive", view.definition(seen.auto)),
        Facts("Conditions", view.conditions(seen.auto)),
        Facts("State", view.state(seen)),
    ]
    orders = Facts("Orders", given_orders(seen.auto.orders))
    if orders.given:
        parts.insert(2, orders)
    parts.append(run_table(runs) if runs else view.NO_RUN)
    return [*parts, f"Next: {_next_step(seen, command)}"]


def run_table(runs: Sequence[SeenRun]) -> Part:
    """A table of runs, or a sentence if there are none."""
    return table_of(_RUN_FIELDS, runs) if runs else view.NO_RUNS


def look_parts(look: Look, in_the_way: Sequence[str]) -> list[Part]:
    """The screen of a dry run.

    :param in_the_way: why a worker would not do it now.
    """
    tables = (
        Table(_WAITING, view.waiting(look)),
        _named_letters("WOULD BE SENT", dict.fromkeys(look.choice.letters, "")),
        _named_letters("WOULD BE HELD", look.choice.held),
    )
    return [
        view.look_summary(look),
        *(f"A worker would not do it now: {why}." for why in in_the_way),
        *(table for table in tables if table.rows),
    ]


def _next_step(seen: SeenAuto, command: Command) -> str:
    name = seen.auto.name
    if seen.stopped:
        own = seen.status.state is seen.state and seen.stopped.startswith("it is")
        return f"after a fix: {command('auto', 'resume', *([name] if own else []))}"
    return f"see what it would send now: {command('auto', 'run', name, '--dry-run')}"


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
    """Inspect, try, pause and resume automatic redrives."""


@auto.command("list")
@format_option
@pass_session
def list_autos(session: Session, form: str) -> None:
    """List automatic redrives, in the order in which they come first."""
    found = _seen_all(session)
    session.screen.emit(form, [*map(view.auto_record, found)], *auto_parts(found, session.command))


@auto.command("show")
@click.argument("name", metavar="NAME")
@limit_option("Show at most this many of its latest runs.", default=10)
@format_option
@pass_session
def show(session: Session, name: str, limit: int, form: str) -> None:
    """Show one automatic redrive: its definition, its state, and its latest runs."""
    seen = _seen(session, name)
    runs = view.seen_runs(session.store, name, limit=limit)
    record = view.whole_auto_record(seen, runs)
    session.screen.emit(form, record, *whole_auto_parts(seen, runs, session.command))


@auto.command("run")
@click.argument("name", metavar="NAME")
@click.option(
    "--dry-run", is_flag=True, help="Show what it would do now; nothing is sent or changed."
)
@format_option
@pass_session
def run(session: Session, name: str, dry_run: bool, form: str) -> None:
    """Let a worker look for letters at once.

    All conditions, limits and times of the automatic redrive hold as usual.
    """
    seen = _seen(session, name)
    if not dry_run:
        _run_now(session, seen, form)
        return
    session.load_tasks()
    look = session.queue.try_auto(name)
    in_the_way = view.in_the_way(seen, session.screen.now)
    session.screen.emit(form, view.look_record(look, in_the_way), *look_parts(look, in_the_way))
    if seen.auto.require.probe:
        session.say(f"The probe {seen.auto.require.probe} was not run.")


@auto.command("pause")
@_maybe_name
@why_option
@pass_session
def pause(session: Session, name: str | None, why: str) -> None:
    """Stop an automatic redrive, or all of them, until it is resumed.

    A running operation of it is cancelled before its next batch. Messages that were sent stay sent; letters
    that were not sent stay dead.
    """
    has_changed = session.queue.pause_auto(name or EVERY, who=operator(), why=why)
    subject = view.subject(name)
    if not has_changed:
        session.done(f"{subject} paused already.")
        return
    session.done(f"{subject} paused now. {_running(session, name)}")
    session.done(f"To resume: {session.command('auto', 'resume', *_words(name))}")


@auto.command("resume")
@_maybe_name
@why_option
@pass_session
def resume(session: Session, name: str | None, why: str) -> None:
    """Let an automatic redrive that was paused, or has suspended itself, run again.

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
@limit_option("Show at most this many runs.", default=50)
@format_option
@pass_session
def history(session: Session, name: str | None, limit: int, form: str) -> None:
    """List the runs that chose letters, newest first, with the outcomes of their operations.

    The runs of an automatic redrive that was removed from the settings are listed, too.
    """
    known = view.seen_runs(session.store, name, limit=limit + 1)
    runs = known[:limit]
    if name is not None and not runs:
        session.queue.auto_redrive_named(name)  # a misspelt name is an error
    session.screen.emit(form, [*map(view.run_record, runs)], run_table(runs))
    session.say_if_more(len(known), limit)


def _seen_all(session: Session) -> list[SeenAuto]:
    autos = session.queue.settings.auto_redrive
    return view.seen_autos(session.store, autos, session.screen.now)


def _seen(session: Session, name: str) -> SeenAuto:
    """The automatic redrive ``name``.

    :raises UnknownAutoRedrive: the settings have none with this name.
    """
    auto = session.queue.auto_redrive_named(name)
    return view.seen_auto(session.store, auto, session.screen.now)


def _run_now(session: Session, seen: SeenAuto, form: str) -> None:
    name = seen.auto.name
    if form != "table":
        raise click.UsageError("--format needs --dry-run.")
    if seen.stopped:
        own = [name] if seen.stopped.startswith("it is") else []
        raise CeleryDLQError(
            f"Automatic redrive {name!r} does not run: {seen.stopped}; to resume: "
            f"{session.command('auto', 'resume', *own)}"
        )
    session.queue.run_auto(name, who=operator())
    closed = seen.auto.when.why_closed(session.screen.now)
    when = f"when its time comes ({closed})" if closed else "at once"
    see = session.command("auto", "history", name)
    session.done(f"A worker looks for the letters of {name} {when}. See: {see}")


def _words(name: str | None) -> list[str]:
    return [] if name in (None, EVERY) else [str(name)]


def _running(session: Session, name: str | None) -> str:
    """A sentence about the operations that run now."""
    of_name = None if name in (None, EVERY) else name
    running = session.store.auto_redrives.unfinished(of_name)
    if not running:
        return (
            "No operation is running." if of_name is None else "None of its operations is running."
        )
    return (
        f"Cancelled before the next batch: operation {', '.join(running)}. Letters that were not sent stay "
        "dead."
    )
