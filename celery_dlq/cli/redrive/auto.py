"""``dlq auto``: inspect, try, pause, resume and suggest automatic redrives, which workers run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from celery_dlq.cli.exits import NamingGroup
from celery_dlq.cli.options import (
    format_option,
    limit_option,
    read_moment,
    read_with,
    whole_number,
    why_option,
)
from celery_dlq.cli.redrive.options import read_share
from celery_dlq.cli.screens.auto import (
    auto_parts,
    look_parts,
    run_table,
    suggestion_parts,
    whole_auto_parts,
)
from celery_dlq.cli.session import Session, operator, pass_session, pass_showing_session
from celery_dlq.errors import CeleryDLQError
from celery_dlq.model.auto_redrive import EVERY
from celery_dlq.upkeep.auto_redrive import suggesting
from celery_dlq.view import auto_redrives as view
from celery_dlq.view import times

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _maybe_name(command: _Command) -> _Command:
    return click.argument("name", metavar="[NAME]", required=False)(command)


@click.group("auto", cls=NamingGroup)
def auto() -> None:
    """Inspect, try, pause, resume and suggest automatic redrives."""


@auto.command("list")
@format_option
@pass_showing_session
def list_autos(session: Session, form: str) -> None:
    """List automatic redrives, in the order in which they come first."""
    found = _seen_all(session)
    session.screen.emit(form, [*map(view.auto_record, found)], *auto_parts(found, session.command))


@auto.command("show")
@click.argument("name", metavar="NAME")
@limit_option("Show at most this many of its latest runs.", default=10)
@format_option
@pass_showing_session
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
@pass_showing_session
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


@auto.command("suggest")
@click.option(
    "--since", metavar="TIME",
    callback=read_moment(times.parse_moment),
    help=f"Only redrives that ended at or after this time: 90m, 2h, 3d or 1w ago, or ISO 8601. "
    f"Default: {suggesting.DAYS}d.",
)  # fmt: skip
@click.option(
    "--least", type=whole_number(), metavar="N", default=suggesting.LEAST, show_default=True,
    help="Redrives that a suggestion needs.",
)  # fmt: skip
@click.option(
    "--success", "share", metavar="SHARE", callback=read_with(read_share),
    default=f"{suggesting.SHARE:.0%}", show_default=True,
    help="Share of them that must have succeeded.",
)  # fmt: skip
@limit_option("Show at most this many suggestions.", default=10)
@format_option
@pass_session
def suggest(
    session: Session, since: datetime | None, least: int, share: float, limit: int, form: str
) -> None:
    """Suggest automatic redrives from the outcomes of past redrives.

    For each group of letters, shows from which age of the failure on its redrives succeeded. Redrives of
    changed messages do not count.
    """
    found = session.queue.suggest_auto(since, least=least, share=share)[:limit]
    seen = view.seen_suggestions(session.store, found, session.screen.now)
    records = [*map(view.suggestion_record, seen)]
    session.screen.emit(form, records, *suggestion_parts(seen, session.command))


def _seen_all(session: Session) -> list[view.SeenAuto]:
    autos = session.queue.settings.auto_redrive
    return view.seen_autos(session.store, autos, session.screen.now)


def _seen(session: Session, name: str) -> view.SeenAuto:
    """The automatic redrive ``name``.

    :raises UnknownAutoRedrive: the settings have none with this name.
    """
    auto = session.queue.auto_redrive_named(name)
    return view.seen_auto(session.store, auto, session.screen.now)


def _run_now(session: Session, seen: view.SeenAuto, form: str) -> None:
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
    """What happens to the operations that run now."""
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
