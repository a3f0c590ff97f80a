"""``dlq forget``: erases the letters of a person from the store and from the archive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import click

from celery_dlq.archive.rewrite import Holders
from celery_dlq.cli.exits import DONE, FAILED, PARTLY, leave
from celery_dlq.cli.options import why_option
from celery_dlq.cli.retention.removal import removing
from celery_dlq.cli.selection import confirm
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.erasure import Erased, Erasure, Found, SpooledLetters
from celery_dlq.errors import CeleryDLQError, RepairError
from celery_dlq.model.states import State
from celery_dlq.view.text import counted

#: Makes a command line of words.
Command = Callable[..., str]

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
@why_option
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@pass_session
def forget(
    session: Session,
    ids: Sequence[str],
    conditions: Sequence[str],
    why: str,
    yes: bool,
) -> None:
    """Erase the letters of a person for ever.

    They are removed from the store, in whatever state they are, and from the archive. The value is also
    replaced in notes, in the audit and in the filters of operations that have ended. Needs --why. Exits with
    4 if such letters are left elsewhere, or if letters could not be read.
    """
    if bool(ids) == bool(conditions):
        raise click.UsageError("Give either --task-id or --where.")
    if not why:
        raise click.UsageError("Erasing letters needs a reason; add --why TEXT.")
    erasure = _erasure(session, ids, conditions)
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
    with removing(session, "dlq forget") as (lease, _pause):
        result = erasure.carry_out(found, lease, who=operator(), why=why)
    session.done(result_of(result))
    left = _look(session, erasure)
    redriven = [*of_redriven(found)]
    _remark(session, *redriven, *remarks(left, session.command), *of_short(erasure.meant.short))
    for task_id in missing:
        session.error(f"No letter has the task id {task_id}.")
    leave(PARTLY if missing or redriven or left.has_work or left.is_elsewhere else DONE)


def _erasure(session: Session, ids: Sequence[str], conditions: Sequence[str]) -> Erasure:
    if conditions:
        # The parameters of tasks say which positional argument has which name.
        session.load_tasks()
    try:
        return session.queue.erasure(ids=ids, where=conditions)
    except RepairError as error:
        raise click.UsageError(f"{error}.") from error


def _look(session: Session, erasure: Erasure) -> Found:
    try:
        return erasure.look()
    except OSError as error:
        raise CeleryDLQError(
            f"The spool {session.queue.spool.directory} cannot be read ({error.strerror or error}); check "
            "dlq_spool_dir, and run this as the workers' user."
        ) from error


def _remark(session: Session, *remarks: str) -> None:
    for remark in remarks:
        session.error(remark)


def places_of(found: Found) -> Iterator[str]:
    """The letters that would be erased: a sentence for the store, one for the archive, and one for texts."""
    states = Counter(state.value for state in found.stored.values())
    if states:
        counts = [f"{count:,} {state}" for state, count in sorted(states.items())]
        yield f"In the store: {', '.join(counts)}."
    if found.archived and found.archived.own:
        segments = [f"{len(ids):,} in {segment}" for segment, ids in found.archived.own.items()]
        yield f"In the archive: {_some(segments)}."
    if found.mentions:
        places = Counter(mention.place for mention in found.mentions)
        yield f"In texts: {', '.join(f'{count:,} in {place}' for place, count in places.items())}."


def question(found: Found) -> str:
    """The question before an erasure."""
    texts = counted(len(found.mentions), "other text")
    parts = [
        *([_letters(len(found.ids))] if found.ids else []),
        *([f"the value in {texts}"] if found.mentions else []),
        *(["what an earlier run has left"] if not (found.ids or found.mentions) else []),
    ]
    return f"Erase {' and '.join(parts)} for ever?"


def result_of(result: Erased) -> str:
    """The result of an erasure, in a sentence."""
    segments = counted(len(result.segments), "segment was", "segments were")
    parts = [
        *([f"{_letters(result.stored)} in the store"] if result.stored else []),
        *(
            [f"{_letters(result.archived)} in the archive, where {segments} replaced"]
            if result.archived
            else []
        ),
        *([f"the value in {counted(result.mentions, 'other text')}"] if result.mentions else []),
    ]
    return f"Erased {'; '.join(parts)}." if parts else "Erased nothing."


def remarks(found: Found, command: Command) -> Iterator[str]:
    """Where such letters are left, and what a person has to do.

    :param command: makes the command line of another command.
    """
    if found.stored:
        yield (
            f"Still in the store: {_some([*found.stored])}. A redrive is sending them, or they have come "
            "meanwhile. Run this again."
        )
    if found.archived and found.archived.own:
        yield "Letters have come into the archive meanwhile. Run this again."
    if found.parked:
        yield f"These wait for a retry, and stay: {_some(found.parked)}. Run this again when they have run."
    for file in found.spooled:
        yield from _of_file(file, command)
    for task_id, reason in [*found.unread.items()][:_NAMED]:
        yield f"{task_id} could not be read, and stays: {reason}. If it is meant, give its --task-id."
    if len(found.unread) > _NAMED:
        yield f"{len(found.unread) - _NAMED:,} more letters could not be read."
    if found.archived is not None:
        yield from _of_archive(found.archived)


def of_redriven(before: Found) -> Iterator[str]:
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
        drain = command("spool", "drain")
        yield (
            f"{file.name} in the spool of this machine holds {counted(file.letters, 'such letter')}. "
            f"Run this, and then erase again: {drain}"
        )
    if file.unread:
        lines = counted(file.unread, "line")
        yield f"{file.name} in the spool of this machine has {lines} that cannot be read. Look into the file."


def _of_archive(archived: Holders) -> Iterator[str]:
    for segment, count in archived.others.items():
        yield (
            f"Segment {segment} of another store holds {counted(count, 'such letter')}, and stays. "
            "Erase with an app that uses that store."
        )
    yield from (finding.reason for finding in archived.unread)


def _letters(count: int) -> str:
    return counted(count, "dead letter")


def _some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _NAMED:,} more" if len(ids) > _NAMED else ""
    return ", ".join(ids[:_NAMED]) + more
