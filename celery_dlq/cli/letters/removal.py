"""``dlq delete``, ``retention`` and ``forget``: remove letters for ever, by hand, by their age, or because
they are of one person."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

import click

from celery_dlq.api.erasure import Erased, Erasure, ErasurePlan, SpooledLetters
from celery_dlq.api.retention import check_reason, deletable
from celery_dlq.cli.exits import DONE, FAILED, PARTLY, HeadedCommand, NamingGroup, leave, reading
from celery_dlq.cli.options import (
    MAIN_FILTERS,
    TAKEABLE,
    Chosen,
    filters,
    format_option,
    selection_options,
    why_option,
    yes_option,
)
from celery_dlq.cli.screens.operation import Command
from celery_dlq.cli.screens.parts import Column, Field, table_of
from celery_dlq.cli.selection import LETTERS, confirm, confirm_act, select
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.errors import OpenLetters, RepairError
from celery_dlq.model.states import CLOSED_STATES, State
from celery_dlq.store.base import Filter
from celery_dlq.upkeep.expiring import removing
from celery_dlq.view.stats import age_of, holding_record, letters_of
from celery_dlq.view.text import byte_size, counted, some

_CLOSED = tuple(sorted(CLOSED_STATES))

_FIELDS: Sequence[Field] = (
    (Column("LETTERS", fold=True), letters_of),
    (Column("KEPT FOR", rigid=True), age_of),
    (Column("CLOSED", right=True, rigid=True), lambda row: row.kept.every.letters),
    (Column("SIZE", right=True, from_width=100), lambda row: byte_size(row.kept.every.size)),
    (Column("EXPIRED", right=True, rigid=True), lambda row: row.kept.expired.letters),
    (Column("SIZE", right=True, rigid=True), lambda row: byte_size(row.kept.expired.size)),
    (Column("IN 1 D", right=True, from_width=100), lambda row: row.kept.within_day),
    (Column("IN 7 D", right=True, from_width=100), lambda row: row.kept.within_week),
    (Column("OLDEST", rigid=True), lambda row: row.kept.oldest_closed_at),
)


@click.command("delete", cls=HeadedCommand)
@filters(only=MAIN_FILTERS, states=(*_CLOSED, *TAKEABLE), default="closed letters")
@click.option(
    "--open", "is_open", is_flag=True,
    help="Delete open letters instead of closed ones; their messages are lost. Needs --why.",
)  # fmt: skip
@why_option
@selection_options
@pass_session
def delete(session: Session, chosen: Chosen, wanted: Filter, is_open: bool, why: str) -> None:
    """Delete closed letters for ever.

    They go with their messages and attempts. The counts of arrivals stay, and so do the audit and the results
    of redrives.
    """
    wanted = _checked(select(session, chosen, wanted), is_open=is_open, why=why)
    failed = confirm_act(session, "Delete {} for ever?", wanted, chosen, can_be_undone=False)
    done = session.queue.delete(wanted, who=operator(), why=why, is_open=is_open)
    session.done(f"Deleted {counted(done, *LETTERS)}.")
    leave(PARTLY if failed else DONE)


def _checked(wanted: Filter, *, is_open: bool, why: str) -> Filter:
    """``wanted`` with the states of the letters to delete.

    :raises click.UsageError: open letters would be deleted by mistake or without a reason.
    :raises DeletionError: open and closed letters would be deleted together.
    """
    try:
        check_reason(why, is_open=is_open)
        return deletable(wanted, is_open=is_open)
    except OpenLetters as error:
        raise click.UsageError(f"{error} Add --open and --why TEXT.") from error


@click.group("retention", cls=NamingGroup, alone="plan")
def retention() -> None:
    """See which closed letters expire, and when.

    Workers delete them once an hour, by the setting dlq_retention, or move them into the archive. Open
    letters never expire.
    """


@retention.command("plan")
@format_option
@pass_session
def plan(session: Session, form: str) -> None:
    """Show what each entry of dlq_retention keeps and deletes.

    Shows what would be deleted now, and what expires within a day and a week. It reads all closed letters,
    and changes nothing.
    """
    rows = session.queue.retention.plan()
    session.screen.emit(form, [*map(holding_record, rows)], table_of(_FIELDS, rows))


@retention.command("run")
@pass_session
def run(session: Session) -> None:
    """Delete now what has expired, instead of at the next hourly round.

    With dlq_archive_url, letters are moved into the archive.
    """
    engine = session.queue.retention
    with removing(session.store, "dlq retention run") as (lease, is_held):
        ended = engine.run(lease, lambda seconds: _wait(seconds) or not is_held(), who=operator())
    done = "Deleted" if session.queue.settings.archive_url is None else "Archived"
    session.done(f"{done} {counted(ended.letters, *LETTERS)}.")
    if not ended.is_over:
        session.error("It was stopped before its end: another process has taken over.")
        leave(PARTLY)


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


#: Names that a remark lists.
_NAMED = 10


@click.command("forget")
@click.option(
    "--task-id",
    "ids",
    metavar="ID",
    multiple=True,
    help="Task id of a letter, in full; repeatable.",
)
@click.option(
    "--where", "conditions", metavar="PLACE=VALUE", multiple=True,
    help="Letters with this value in their message, such as args.user_id=7; repeatable, and all must hold.",
)  # fmt: skip
@click.option(
    "--subject", metavar="PERSON",
    help="Letters of this person, as dlq_subject names it; destroys the key that they are encrypted with.",
)  # fmt: skip
@why_option
@yes_option
@pass_session
def forget(
    session: Session,
    ids: Sequence[str],
    conditions: Sequence[str],
    subject: str | None,
    why: str,
    yes: bool,
) -> None:
    """Erase the letters of a person for ever.

    They are removed from the store, in whatever state they are, and from the archive. The value is also
    replaced in notes, in the audit and in the filters of operations that have ended. With --subject, the
    person's key is destroyed, so that letters in the archive, in backups and in replicas cannot be read.
    Needs --why. Exits with 4 if such letters are left elsewhere, or if letters could not be read.
    """
    if [bool(ids), bool(conditions), bool(subject)].count(True) != 1:
        raise click.UsageError("Give either --task-id, --where or --subject.")
    if subject and session.queue.keyring is None:
        raise click.UsageError(
            "--subject needs dlq_encryption_keys, because it destroys a key; give --where instead."
        )
    if not why:
        raise click.UsageError("Erasing letters needs a reason; add --why TEXT.")
    erasure = _erasure(session, ids, conditions, subject)
    found = _look(session, erasure)
    missing = sorted({*erasure.meant.ids}.difference(found.ids, found.parked))
    if not found.has_work:
        said = "Nothing was erased." if found.is_elsewhere else "No dead letters match."
        session.screen.show(said)
        _remark(session, *remarks(found, session.command))
        leave(PARTLY if found.is_elsewhere else FAILED if ids else DONE)
    if not yes:
        session.screen.show(*places_of(found))
    confirm(session, question(found), count=2, yes=yes)
    with removing(session.store, "dlq forget") as (lease, _):
        result = erasure.carry_out(found, lease, who=operator(), why=why)
    session.done(result_of(result))
    left = _look(session, erasure)
    redriven = [*of_redriven(found)]
    _remark(session, *redriven, *remarks(left, session.command), *of_short(erasure.meant.short))
    for task_id in missing:
        session.error(f"No letter has the task id {task_id}.")
    leave(PARTLY if missing or redriven or left.has_work or left.is_elsewhere else DONE)


def _erasure(
    session: Session, ids: Sequence[str], conditions: Sequence[str], subject: str | None
) -> Erasure:
    if conditions:
        # The parameters of tasks say which positional argument has which name.
        session.load_tasks()
    try:
        return session.queue.erasure(ids=ids, where=conditions, subject=subject or "")
    except RepairError as error:
        raise click.UsageError(f"{error}.") from error


def _look(session: Session, erasure: Erasure) -> ErasurePlan:
    with reading(f"The spool {session.queue.spool.directory}", "dlq_spool_dir"):
        return erasure.look()


def _remark(session: Session, *remarks: str) -> None:
    for remark in remarks:
        session.error(remark)


def places_of(found: ErasurePlan) -> Iterator[str]:
    """The letters that would be erased: a sentence for the store, one for the archive, and one for texts."""
    states = Counter(state.value for state in found.stored.values())
    if states:
        counts = [f"{count:,} {state}" for state, count in sorted(states.items())]
        yield f"In the store: {', '.join(counts)}."
    if found.archived and found.archived.ids:
        segments = [f"{len(ids):,} in {segment}" for segment, ids in found.archived.ids.items()]
        yield f"In the archive: {some(segments)}."
    if found.mentions:
        places = Counter(mention.place for mention in found.mentions)
        yield f"In texts: {', '.join(f'{count:,} in {place}' for place, count in places.items())}."
    if found.has_key:
        yield "The person's key, with which also letters in the archive and in backups are encrypted."


def question(found: ErasurePlan) -> str:
    """The question before an erasure."""
    texts = counted(len(found.mentions), "other text")
    parts = [
        _letters(len(found.ids)) if found.ids else "",
        f"the value in {texts}" if found.mentions else "",
        "the key of the person" if found.has_key else "",
    ]
    what = " and ".join(filter(None, parts)) or "what an earlier run has left"
    return f"Erase {what} for ever?"


def result_of(result: Erased) -> str:
    """The result of an erasure, in a sentence."""
    segments = counted(len(result.segments), "segment was", "segments were")
    in_archive = f"{_letters(result.archived)} in the archive, where {segments} replaced"
    parts = [
        f"{_letters(result.stored)} in the store" if result.stored else "",
        in_archive if result.archived else "",
        f"the value in {counted(result.mentions, 'other text')}" if result.mentions else "",
        "the key of the person" if result.key else "",
    ]
    return f"Erased {'; '.join(filter(None, parts)) or 'nothing'}."


def remarks(found: ErasurePlan, command: Command) -> Iterator[str]:
    """Where such letters are left, and what a person has to do.

    :param command: makes the command line of another command.
    """
    if found.stored:
        yield (
            f"Still in the store: {some([*found.stored])}. A redrive is sending them, or they have come "
            "meanwhile. Run this again."
        )
    if found.archived and found.archived.ids:
        yield "Letters have come into the archive meanwhile. Run this again."
    if found.has_key:
        yield "The person's key stays until no message needs it. Run this again."
    if found.parked:
        yield (
            f"These wait in the store to be sent, and stay: {some(found.parked)}. Run this again when they "
            "have run."
        )
    for file in found.spooled:
        yield from _of_file(file, command)
    for task_id, reason in [*found.unread.items()][:_NAMED]:
        yield f"{task_id} could not be read, and stays: {reason}. If it is meant, give its --task-id."
    if len(found.unread) > _NAMED:
        yield f"{len(found.unread) - _NAMED:,} more letters could not be read."
    if found.archived is not None:
        yield from (finding.reason for finding in found.archived.unread)


def of_redriven(before: ErasurePlan) -> Iterator[str]:
    """A remark about letters whose messages were sent back before they were erased."""
    redriven = sum(state is State.REDRIVEN for state in before.stored.values())
    if redriven:
        yield (
            f"Messages of {_letters(redriven)} were sent back. If one of them fails, it is a letter again. "
            "Run this again when they have run."
        )


def of_short(places: Sequence[str]) -> Iterator[str]:
    """A remark about values that were not searched in other texts."""
    if places:
        yield f"The value of {', '.join(places)} is too short to be searched in notes and in the audit."


def _of_file(file: SpooledLetters, command: Command) -> Iterator[str]:
    if file.letters:
        drain = command("recover")
        yield (
            f"{file.name} in the spool of this machine holds {counted(file.letters, 'such letter')}. "
            f"Run this, and then erase again: {drain}"
        )
    if file.unread:
        lines = counted(file.unread, "line")
        yield f"{file.name} in the spool of this machine has {lines} that cannot be read. Look into the file."


def _letters(count: int) -> str:
    return counted(count, "dead letter")
