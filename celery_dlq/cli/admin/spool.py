"""``dlq spool``: lists the files of the spool, and brings their letters into the store by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from celery_dlq.api.queue import NotedAct
from celery_dlq.cli.exits import PARTLY, NamingGroup, leave
from celery_dlq.cli.options import format_option
from celery_dlq.cli.screens.parts import Column, Field, table_of
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.errors import CeleryDLQError, StoreError
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import State
from celery_dlq.spool import Drained, FileState, Record, SpoolFile, find_record, look
from celery_dlq.view.records import spool_file_record
from celery_dlq.view.text import byte_size, counted

if TYPE_CHECKING:
    from celery_dlq.store import Store

_FIELDS: Sequence[Field] = (
    (Column("FILE", fold=True), lambda file: file.name),
    (Column("STATE", rigid=True), lambda file: file.state.value),
    (Column("RECORDS", right=True, rigid=True), lambda file: file.records),
    (Column("SIZE", right=True, rigid=True), lambda file: byte_size(file.size)),
    (Column("WRITTEN", rigid=True), lambda file: file.written_at),
)

#: Records of an imported file per write.
_BATCH = 500

#: Names that a remark lists.
_NAMED = 10


@click.group("spool", cls=NamingGroup)
def spool() -> None:
    """List, drain and import letters that wait outside the store."""


@spool.command("list")
@format_option
@pass_session
def list_files(session: Session, form: str) -> None:
    """List the files of the spool in dlq_spool_dir on this machine.

    States: in use (its worker is alive), waiting (ready to be drained), newer (written by a newer release),
    torn (incomplete lines), refused (letters that the store does not accept).
    """
    directory = session.queue.spool.directory.absolute()
    found = _files_in(directory)
    rows = [spool_file_record(file) for file in found]
    empty = f"The spool {directory} is empty."
    session.screen.emit(form, rows, table_of(_FIELDS, found, str(directory)) if found else empty)


@spool.command("drain")
@pass_session
def drain(session: Session) -> None:
    """Move the letters of the spool into the store.

    Drained files are removed; a file that a live worker writes to is left to that worker. Exits with 0 if the
    spool is empty afterwards, and with 4 if files remain: in use, refused, torn, or newer.
    """
    total = Drained()
    directory = session.queue.spool.directory.absolute()
    _files_in(directory)  # a drain takes an unreadable directory for an empty one
    place = {"directory": str(directory)}
    # An empty spool needs no store.
    act = NotedAct(lambda: session.store, who=operator(), act="drain", detail=place)
    try:
        for step in session.queue.drain_spool():
            total += step
            act.reached(total.stored)
    except StoreError:
        drained = counted(total.stored, "record")
        session.say(f"{drained} drained before the store failed; the rest stays in the spool.")
        raise
    session.done(f"{counted(total.stored, 'record')} drained from {directory} into the store.")
    remarks = list(_what_stays(_files_in(directory), session))
    for remark in remarks:
        session.error(remark)
    if remarks:
        leave(PARTLY)


def _files_in(directory: Path) -> list[SpoolFile]:
    """:raises CeleryDLQError: the directory cannot be read."""
    try:
        return list(look(directory))
    except OSError as error:
        raise CeleryDLQError(
            f"The spool {directory} cannot be read ({error.strerror or error}); check dlq_spool_dir, and run "
            "this as the workers' user."
        ) from error


def _what_stays(files: Sequence[SpoolFile], session: Session) -> Iterator[str]:
    """A remark for each state of the files that a drain has left."""
    again = session.command("spool", "import", "FILE")
    steps = {
        FileState.IN_USE: "Left to the workers that use them: {}",
        FileState.WAITING: "Could not be read or removed, and left: {}; see the log above.",
        FileState.NEWER: "Written by a newer release, and left: {}; "
        "run: pip install --upgrade celery-dlq",
        FileState.TORN: "Incomplete lines, set aside: {}; read them and keep a copy elsewhere.",
        FileState.REFUSED: f"Refused by the store, set aside: {{}}; fix the cause, then run: {again}",
    }
    for state, remark in steps.items():
        # A live worker has a file open before it writes its first letter.
        kept = [file for file in files if file.state is not FileState.IN_USE or file.records]
        names = [file.name for file in kept if file.state is state]
        if names:
            yield remark.format(_shortened("file", names))


@spool.command("import")
@click.argument(
    "file", metavar="FILE", type=click.File("r", encoding="utf-8", errors="backslashreplace")
)
@pass_session
def import_records(session: Session, file: IO[str]) -> None:
    """Store the letters in a log or in a file that was set aside.

    FILE is a worker's log, plain or in JSON, with critical lines "dead letter neither stored nor spooled"; or
    a *.refused file; or - for standard input. Letters that are already stored are not stored twice.
    """
    stored, refused, unreadable, letters = 0, list[str](), list[str](), dict[str, None]()
    try:
        named = {"file": getattr(file, "name", "<stdin>")}
        store = session.store
        act = NotedAct(lambda: store, who=operator(), act="import", detail=named)
        for batch in _batches(_records_in(file, unreadable)):
            places = session.queue.store_records(batch)
            refused += [batch[place].task_id for place in places]
            stored += len(batch) - len(places)
            act.reached(stored)
            kept = [one for place, one in enumerate(batch) if place not in places]
            letters |= dict.fromkeys(one.task_id for one in kept if isinstance(one, DeadLetter))
        again = list(_delivered_again(store, letters))
    except StoreError:
        session.say(f"{counted(stored, 'record')} stored before the store failed; run it again.")
        raise
    session.done(f"{counted(stored, 'record')} stored.")
    if unreadable:
        session.say(f"Cut off, or written by a newer release: {_shortened('line', unreadable)}")
    if refused:
        session.say(f"Refused by the store: {_shortened('record', refused)}")
    if again:
        session.say(
            "Delivered again after their failure, so their tasks may have succeeded since; check this before "
            f"you redrive them: {_shortened('letter', again)}"
        )
    if unreadable or refused:
        leave(PARTLY)


def _delivered_again(store: Store, task_ids: Iterable[str]) -> Iterator[str]:
    """The ids of the open letters whose messages the broker delivered again after the last known failure.
    A success closes the letter that the store has, and the store did not have these."""
    for task_id in task_ids:
        letter = store.letters.get(task_id)
        if letter is None or letter.state is not State.DEAD or not letter.attempts:
            continue
        last = letter.attempts[-1]
        run = (last.redrive, last.number)
        if store.deliveries.came_again(letter.task_id, letter.task, run, letter.last_failed_at):
            yield letter.task_id


def _records_in(lines: Iterable[str], unreadable: list[str]) -> Iterator[Record]:
    """The records of ``lines``. The numbers of the lines whose record cannot be read are added to
    ``unreadable``."""
    for number, line in enumerate(lines, start=1):
        record = None
        try:
            record = find_record(line)
        except (ValueError, RecursionError):
            unreadable.append(str(number))
        if record is not None:
            yield record


def _batches(records: Iterator[Record]) -> Iterator[list[Record]]:
    while batch := list(islice(records, _BATCH)):
        yield batch


def _shortened(one: str, names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{one if len(names) == 1 else one + 's'} {', '.join(names[:_NAMED])}{more}"
