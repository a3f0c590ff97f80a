"""``dlq recover``: lists the files of this machine that hold letters and messages outside the store, and
brings these into the store by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from celery_dlq.api.queue import NotedAct
from celery_dlq.base.sealing import Keyring
from celery_dlq.cli.exits import PARTLY, HeadedCommand, leave, reading
from celery_dlq.cli.options import format_option
from celery_dlq.cli.screens.parts import Column, Field, table_of
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.errors import ContentsSealed
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import State
from celery_dlq.spool.directory import Drained
from celery_dlq.spool.look import look
from celery_dlq.spool.segment import Record, find_record
from celery_dlq.upkeep.recovery import Recovered
from celery_dlq.view import records
from celery_dlq.view.text import byte_size, counted, some
from celery_dlq.view.times import parse_point

if TYPE_CHECKING:
    from celery_dlq.store import Store

_FIELDS: Sequence[Field] = (
    (Column("IN", rigid=True), lambda row: row["kind"]),
    (Column("NAME", fold=True), lambda row: row["name"]),
    (Column("WORKER"), lambda row: row["worker"]),
    (Column("STATE", rigid=True), lambda row: row["state"]),
    (Column("HOLDS", right=True, rigid=True), lambda row: row["holds"]),
    (Column("SIZE", right=True, rigid=True), lambda row: byte_size(row["size"])),
    (Column("WRITTEN", rigid=True), lambda row: parse_point(row["written_at"])),
)

#: What may remain after a recovery, by state, with the next step.
_REMARKS = {
    "in use": "Left to the workers that use them: {}",
    "waiting": "Could not be read or removed, and left: {}; see the log above.",
    "torn": "Incomplete lines, set aside: {}; read them and keep a copy elsewhere.",
    "damaged": "Damaged, and kept: {}; what could be read was recovered. Keep a copy, and remove them.",
    "refused": "Refused by the store, set aside: {}; fix the cause, then run: {again}",
}

#: Records of an imported file per write.
_BATCH = 500


@click.command("recover", cls=HeadedCommand)
@click.argument(
    "file", metavar="[FILE]", required=False,
    type=click.File("r", encoding="utf-8", errors="backslashreplace"),
)  # fmt: skip
@click.option("--list", "lists", is_flag=True, help="List what waits here, and change nothing.")
@format_option
@pass_session
def recover(session: Session, file: IO[str] | None, lists: bool, form: str) -> None:
    """Bring letters and messages from files of this machine into the store.

    Without FILE: the letters of the spool, and the messages that killed workers were running, which become
    letters. On Redis and SQS, messages that they had not acknowledged go back to their queues. Workers do all
    this themselves, within seconds if one runs on the machine. Files of living workers are left alone. Exits
    with 4 if files or messages remain.

    FILE is a worker's log, plain or in JSON, with critical lines "dead letter neither stored nor spooled"; or
    a *.refused file; or - for standard input. Letters that are already stored are not stored twice.

    --list shows files of the spool and directories of the flight recorder. States: in use (its worker is
    alive), waiting or gone (ready to be recovered), torn or damaged (something in it cannot be read), refused
    (letters that the store does not accept).
    """
    if file is not None:
        _store_file(session, file)
        return
    rows = _rows(session)  # a drain takes an unreadable directory for an empty one
    if lists:
        session.screen.emit(form, rows, table_of(_FIELDS, rows) if rows else _nothing_in(session))
    else:
        remarks = [*_recover(session), *_what_stays(session)]
        for remark in remarks:
            session.error(remark)
        if remarks:
            leave(PARTLY)


def _rows(session: Session) -> list[dict[str, Any]]:
    """The files of the spool, and the directories of the flight recorder."""
    spool, recorder = session.queue.spool.directory.absolute(), session.queue.recorder_dir
    with reading(f"The spool {spool}", "dlq_spool_dir"):
        rows = [*map(records.file_record, look(spool))]
    with reading(f"The flight recorder's directory {recorder}", "dlq_recorder_dir"):
        return [*rows, *map(records.file_record, session.queue.recorder.look())]


def _nothing_in(session: Session) -> str:
    spool, recorder = session.queue.spool.directory.absolute(), session.queue.recorder_dir
    return f"Nothing waits in the spool {spool} and in the flight recorder's directory {recorder}."


def _recover(session: Session) -> Iterator[str]:
    """Move the letters of the spool into the store, and make letters of the messages that killed workers were
    running. Gives remarks about messages that wait."""
    spool, drained, total = session.queue.spool.directory.absolute(), Drained(), Recovered()
    # Without records or messages, no store is needed.
    act = _noted(session, "drain", spool)
    for step in session.queue.drain_spool():
        drained += step
        act.reached(drained.stored)
    session.done(f"{counted(drained.stored, 'record')} drained from {spool} into the store.")
    act = _noted(session, "recover", session.queue.recorder_dir)
    for made in session.queue.recorder.recover():
        total += made
        act.reached(total.letters)
    ended = f"; {counted(total.ended, 'message')} had ended after all" if total.ended else ""
    session.done(f"{counted(total.letters, 'letter')} made, reason lost{ended}.")
    if total.waiting:
        wait_s = session.queue.hold.given_back_after_s
        yield (
            f"{counted(total.waiting, 'message')} may still come again from the broker, up to {wait_s:g} s "
            "after they began; run this again later, or leave them to a worker."
        )
    if total.failed:
        names = [path.name for path in total.failed]
        yield f"Could not be read or written, and left: {some(names)}; see the log above."


def _noted(session: Session, act: str, place: Path) -> NotedAct:
    detail = {"directory": str(place)}
    return NotedAct(lambda: session.store, who=operator(), act=act, detail=detail)


def _what_stays(session: Session) -> Iterator[str]:
    """A remark for each state of the files that stay."""
    # A live worker has a file open before it writes its first letter, and copies of what it runs.
    rows = [
        row for row in _rows(session)
        if row["state"] != "in use" or (row["kind"] == "spool" and row["holds"])
    ]  # fmt: skip
    for state, remark in _REMARKS.items():
        names = [row["name"] for row in rows if row["state"] == state]
        if names:
            again = session.command("recover", "FILE")
            yield remark.format(_shortened("file", names), again=again)


def _store_file(session: Session, file: IO[str]) -> None:
    stored, refused, unreadable, letters = 0, list[str](), dict[str, str](), dict[str, None]()
    named, store = {"file": getattr(file, "name", "<stdin>")}, session.store
    act = NotedAct(lambda: store, who=operator(), act="import", detail=named)
    for batch in _batches(_records_in(file, session.queue.keyring, unreadable)):
        places = session.queue.store_records(batch)
        refused += [batch[place].task_id for place in places]
        stored += len(batch) - len(places)
        act.reached(stored)
        kept = [one for place, one in enumerate(batch) if place not in places]
        letters |= dict.fromkeys(one.task_id for one in kept if isinstance(one, DeadLetter))
    again = list(_delivered_again(store, letters))
    session.done(f"{counted(stored, 'record')} stored.")
    for why in dict.fromkeys(unreadable.values()):
        lines = [number for number, one in unreadable.items() if one == why]
        session.say(f"{why.rstrip('.')}: {_shortened('line', lines)}")
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


def _records_in(
    lines: Iterable[str], ring: Keyring | None, unreadable: dict[str, str]
) -> Iterator[Record]:
    """The records of ``lines``. The numbers of the lines whose record cannot be read are added to
    ``unreadable``, each with the reason."""
    for number, line in enumerate(lines, start=1):
        record = None
        try:
            record = find_record(line, ring)
        except (ValueError, RecursionError):
            unreadable[str(number)] = "Cut off, or not readable by this release"
        except ContentsSealed as error:
            unreadable[str(number)] = str(error)
        if record is not None:
            yield record


def _batches(records: Iterator[Record]) -> Iterator[list[Record]]:
    while batch := list(islice(records, _BATCH)):
        yield batch


def _shortened(one: str, names: list[str]) -> str:
    return f"{one if len(names) == 1 else one + 's'} {some(names)}"
