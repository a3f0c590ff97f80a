"""Commands for the spool: what waits there, and bringing it into the store by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, Any

import click

from celery_dlq.cli.exits import PARTLY
from celery_dlq.cli.options import format_option
from celery_dlq.cli.render import Column, Part, Table
from celery_dlq.cli.session import Session, operator
from celery_dlq.errors import StoreError
from celery_dlq.spool import Drained, Record, SpoolFile, find_record, look
from celery_dlq.store.noted_act import NotedAct
from celery_dlq.view.records import spool_file_record
from celery_dlq.view.text import byte_size, counted

_COLUMNS = (
    Column("FILE", fold=True),
    Column("STATE", rigid=True),
    Column("RECORDS", right=True, rigid=True),
    Column("SIZE", right=True, rigid=True),
    Column("WRITTEN", rigid=True),
)

#: Records of an imported file that are stored at a time.
_BATCH = 500

#: Lines that one remark names.
_NAMED = 10


@click.group("spool")
def spool() -> None:
    """Look at letters that wait outside the store, and bring them in."""


@spool.command("list")
@format_option
@click.pass_obj
def list_files(cli: Any, form: str) -> None:
    """List the files of the spool in this machine's dlq_spool_dir.

    States: in use (its worker lives), waiting (the next drain takes it), newer (a newer release
    wrote it), torn (lines that are no whole letter), refused (letters the store does not take).
    """
    session = Session(cli)
    directory = session.queue.spool.directory.absolute()
    found = list(look(directory))
    rows = [spool_file_record(file) for file in found]
    session.screen.emit(form, rows, _file_table(found, str(directory)))


def _file_table(found: list[SpoolFile], directory: str) -> Part:
    if not found:
        return f"The spool {directory} is empty."
    rows = [
        (file.name, file.state.value, file.records, byte_size(file.size), file.written_at)
        for file in found
    ]
    return Table(_COLUMNS, rows, title=directory)


@spool.command("drain")
@click.pass_context
def drain(ctx: click.Context) -> None:
    """Bring the letters of the spool into the store, and remove the files.

    Files that a living worker writes to are left to it. Exit status 4 when something stays or is set
    aside that needs a hand.
    """
    session, total = Session(ctx.obj), Drained()
    try:
        for step in session.queue.drain_spool():
            total += step
    except StoreError:
        drained = counted(total.stored, "record")
        session.say(f"{drained} drained before the store failed; the rest stays in the spool.")
        raise
    directory = session.queue.spool.directory.absolute()
    session.done(f"{counted(total.stored, 'record')} drained from {directory} into the store.")
    if total.in_use:
        session.say(f"Left to the workers that use them: {', '.join(total.in_use)}")
    remarks = list(_needs_a_hand(total, session))
    for remark in remarks:
        session.say(remark)
    if remarks:
        ctx.exit(PARTLY)


def _needs_a_hand(total: Drained, session: Session) -> Iterator[str]:
    if total.newer:
        names = ", ".join(total.newer)
        yield f"Written by a newer release, and left: {names}; run: pip install --upgrade celery-dlq"
    if total.failed:
        yield f"Could not be read or removed, and left: {', '.join(total.failed)}; see the log above."
    if total.torn:
        yield f"{counted(total.torn, 'torn line')} set aside in *.torn; read and keep them elsewhere."
    if total.refused:
        again = session.command("spool", "import", "FILE")
        records = counted(total.refused, "record")
        yield f"{records} refused, and set aside in *.refused; mend the cause, then run: {again}"


@spool.command("import")
@click.argument(
    "file", metavar="FILE", type=click.File("r", encoding="utf-8", errors="backslashreplace")
)
@click.pass_context
def import_records(ctx: click.Context, file: IO[str]) -> None:
    """Store the letters that a log or a set-aside file holds.

    FILE is a worker's log with critical lines "dead letter neither stored nor spooled", plain or as
    JSON objects, or a *.refused file, or - for standard input. What is stored already counts once.
    """
    session, found = Session(ctx.obj), _Found()
    stored, refused = 0, list[str]()
    try:
        named = {"file": getattr(file, "name", "<stdin>")}
        act = NotedAct(session.store, who=operator(), act="import", detail=named)
        for batch in _batches(found.read(file)):
            places = session.queue.store_records(batch)
            refused += [batch[place].task_id for place in places]
            stored += len(batch) - len(places)
            act.reached(stored)
    except StoreError:
        session.say(f"{counted(stored, 'record')} stored before the store failed; run it again.")
        raise
    session.done(f"{counted(stored, 'record')} stored.")
    if found.unreadable:
        session.say(f"Cut off, or of a newer release: {_shortened('line', found.unreadable)}")
    if refused:
        session.say(f"Refused by the store: {_shortened('record', refused)}")
    if found.unreadable or refused:
        ctx.exit(PARTLY)


@dataclass
class _Found:
    """What is read of a file, line by line."""

    #: Numbers of lines in which a record begins that cannot be read.
    unreadable: list[str] = field(default_factory=list)

    def read(self, lines: Iterable[str]) -> Iterator[Record]:
        """The records of ``lines``; those that cannot be read are noted."""
        for number, line in enumerate(lines, start=1):
            record = self._record_in(line, number)
            if record is not None:
                yield record

    def _record_in(self, line: str, number: int) -> Record | None:
        try:
            return find_record(line)
        except (ValueError, RecursionError):
            self.unreadable.append(str(number))
            return None


def _batches(records: Iterator[Record]) -> Iterator[list[Record]]:
    while batch := list(islice(records, _BATCH)):
        yield batch


def _shortened(one: str, names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{one if len(names) == 1 else one + 's'} {', '.join(names[:_NAMED])}{more}"
