"""``dlq spool`` and ``dlq recorder``: list the files of this machine that hold letters and messages outside
the store, and bring them into the store by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from celery_dlq.api.queue import NotedAct
from celery_dlq.cli.exits import PARTLY, NamingGroup, leave, reading
from celery_dlq.cli.options import format_option
from celery_dlq.cli.screens.parts import Column, Field, table_of
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.errors import StoreError
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import State
from celery_dlq.recorder import Left, LeftState
from celery_dlq.spool import Drained, FileState, Record, SpoolFile, find_record, look
from celery_dlq.upkeep.recovery import Recovered
from celery_dlq.view.records import recorded_record, spool_file_record
from celery_dlq.view.text import byte_size, counted, some

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
    _leave_with([*_what_stays(_files_in(directory), session)], session)


def _leave_with(remarks: Sequence[str], session: Session) -> None:
    """Say why files stay, and end with another status if some do."""
    for remark in remarks:
        session.error(remark)
    if remarks:
        leave(PARTLY)


def _files_in(directory: Path) -> list[SpoolFile]:
    with reading(f"The spool {directory}", "dlq_spool_dir"):
        return list(look(directory))


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
    return f"{one if len(names) == 1 else one + 's'} {some(names)}"


_RECORDER_FIELDS: Sequence[Field] = (
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
def list_recorded(session: Session, form: str) -> None:
    """List the directories of the flight recorder on this machine, one for each worker process.

    States: in use (its worker lives, and runs these messages), gone (its worker was killed: the messages wait
    for recovery), newer (written by a newer release), damaged (files in which something cannot be read).
    """
    found = _recorded_in(session)
    rows = [recorded_record(left) for left in found]
    place = session.queue.recorder_dir
    empty = f"No worker has recorded a message in {place}."
    session.screen.emit(
        form, rows, table_of(_RECORDER_FIELDS, found, str(place)) if found else empty
    )


@recorder.command("recover")
@pass_session
def recover(session: Session) -> None:
    """Make letters of the messages that killed workers were running.

    On Redis and SQS, messages that they had not acknowledged go back to their queues. Workers do all this
    themselves, within seconds if one runs on the machine. Files of living workers are left alone. Exits
    with 4 if messages or damaged files remain.
    """
    total = Recovered()
    _recorded_in(session)
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
    _leave_with([*_what_waits(session, total)], session)


def _recorded_in(session: Session) -> list[Left]:
    place = session.queue.recorder_dir
    with reading(f"The flight recorder's directory {place}", "dlq_recorder_dir"):
        return list(session.queue.recorded())


def _what_waits(session: Session, total: Recovered) -> Iterator[str]:
    """A remark for each kind of messages that a recovery has left."""
    if total.waiting:
        wait_s = session.queue.hold.given_back_after_s
        yield (
            f"{counted(total.waiting, 'message')} may still come again from the broker, up to {wait_s:g} s "
            "after they began; run this again later, or leave them to a worker."
        )
    if total.failed:
        yield f"Could not be read or written, and left: {_names_of(total.failed)}; see the log above."
    kept = {
        state: [one.path for one in _recorded_in(session) if one.state is state]
        for state in LeftState
    }
    if kept[LeftState.NEWER]:
        yield (
            f"Written by a newer release, and left: {_names_of(kept[LeftState.NEWER])}; "
            "run: pip install --upgrade celery-dlq"
        )
    if kept[LeftState.DAMAGED]:
        yield (
            f"Damaged, and kept: {_names_of(kept[LeftState.DAMAGED])}; what could be read was recovered. "
            "Keep a copy elsewhere, and remove them."
        )


def _names_of(paths: Sequence[Path]) -> str:
    return ", ".join(path.name for path in paths)
