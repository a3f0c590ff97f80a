"""``dlq recorder``: lists the files of the flight recorder, and recovers messages by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from celery_dlq.api.queue import NotedAct
from celery_dlq.cli.exits import PARTLY, NamingGroup, leave
from celery_dlq.cli.options import format_option
from celery_dlq.cli.screens.parts import Column, Field, table_of
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.errors import CeleryDLQError, StoreError
from celery_dlq.recorder import Left, LeftState
from celery_dlq.upkeep.recovery import Recovered
from celery_dlq.view.records import recorded_record
from celery_dlq.view.text import byte_size, counted

_FIELDS: Sequence[Field] = (
    (Column("DIRECTORY", fold=True), lambda left: left.path.name),
    (Column("WORKER"), lambda left: left.owner.worker if left.owner else ""),
    (Column("STATE", rigid=True), lambda left: left.state.value),
    (Column("MESSAGES", right=True, rigid=True), lambda left: left.messages),
    (Column("SIZE", right=True, rigid=True), lambda left: byte_size(left.size)),
    (Column("WRITTEN", rigid=True), lambda left: left.written_at),
)


@click.group("recorder", cls=NamingGroup)
def recorder() -> None:
    """List and recover messages of killed workers."""


@recorder.command("list")
@format_option
@pass_session
def list_files(session: Session, form: str) -> None:
    """List the directories of the flight recorder on this machine, one for each worker process.

    States: in use (its worker lives, and runs these messages), gone (its worker was killed: the messages wait
    for recovery), newer (written by a newer release), damaged (files in which something cannot be read).
    """
    found = _look(session)
    rows = [recorded_record(left) for left in found]
    place = session.queue.recorder_dir
    empty = f"No worker has recorded a message in {place}."
    session.screen.emit(form, rows, table_of(_FIELDS, found, str(place)) if found else empty)


@recorder.command("recover")
@pass_session
def recover(session: Session) -> None:
    """Make letters of the messages that killed workers were running.

    Workers do this themselves, when they start and once a minute. Files of living workers are left alone.
    Exits with 4 if messages or damaged files remain.
    """
    total = Recovered()
    _look(session)
    place = {"directory": str(session.queue.recorder_dir)}
    # Without messages to recover, no store is needed.
    act = NotedAct(lambda: session.store, who=operator(), act="recover", detail=place)
    try:
        for step in session.queue.recover():
            total += step
            act.reached(total.letters)
    except StoreError:
        made = counted(total.letters, "letter")
        session.say(f"{made} made before the store failed; the other messages stay in their files.")
        raise
    ended = f"; {counted(total.ended, 'message')} had ended after all" if total.ended else ""
    session.done(f"{counted(total.letters, 'letter')} made, reason lost{ended}.")
    remarks = list(_what_stays(session, total))
    for remark in remarks:
        session.error(remark)
    if remarks:
        leave(PARTLY)


def _look(session: Session) -> list[Left]:
    """:raises CeleryDLQError: the directory cannot be read."""
    place = session.queue.recorder_dir
    try:
        return list(session.queue.recorded())
    except OSError as error:
        raise CeleryDLQError(
            f"The flight recorder's directory {place} cannot be read ({error.strerror or error}); check "
            "dlq_recorder_dir, and run this as the workers' user."
        ) from error


def _what_stays(session: Session, total: Recovered) -> Iterator[str]:
    """A remark for each kind of messages that a recovery has left."""
    if total.waiting:
        wait_s = session.queue.hold.given_back_after_s
        yield (
            f"{counted(total.waiting, 'message')} may still come again from the broker, up to {wait_s:g} s "
            "after they began; run this again later, or leave them to a worker."
        )
    if total.failed:
        yield f"Could not be read or written, and left: {_named(total.failed)}; see the log above."
    kept = {
        state: [one.path for one in _look(session) if one.state is state] for state in LeftState
    }
    if kept[LeftState.NEWER]:
        yield (
            f"Written by a newer release, and left: {_named(kept[LeftState.NEWER])}; "
            "run: pip install --upgrade celery-dlq"
        )
    if kept[LeftState.DAMAGED]:
        yield (
            f"Damaged, and kept: {_named(kept[LeftState.DAMAGED])}; what could be read was recovered. "
            "Keep a copy elsewhere, and remove them."
        )


def _named(paths: Sequence[Path]) -> str:
    return ", ".join(path.name for path in paths)
