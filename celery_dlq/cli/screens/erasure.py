"""An erasure: what it found, what it did, and what it left elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from celery_dlq.archive.rewrite import Holders
from celery_dlq.erasure.erasure import Erased, Found
from celery_dlq.erasure.matching import SpooledLetters
from celery_dlq.model.states import State
from celery_dlq.view.text import counted

#: Makes a command line of words.
Command = Callable[..., str]

#: Names that a remark lists.
_NAMED = 10


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
    """What an erasure has done."""
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
    """What becomes of letters whose messages were sent back before they were erased."""
    redriven = sum(state is State.REDRIVEN for state in before.stored.values())
    if redriven:
        yield (
            f"Messages of {_letters(redriven)} were sent back. If one of them fails, it is a letter again. "
            "Run this again when they have run."
        )


def of_short(places: Sequence[str]) -> Iterator[str]:
    """Which values were not searched in other texts."""
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
