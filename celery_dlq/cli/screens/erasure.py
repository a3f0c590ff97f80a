"""An erasure: what it found, what it did, and what it left elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from celery_dlq.archive.rewrite import Holders
from celery_dlq.erasure.engine import Erased, Found
from celery_dlq.erasure.spooled import SpooledLetters
from celery_dlq.view.text import counted

#: Makes a command line of words.
Command = Callable[..., str]

#: Names that a remark lists.
_NAMED = 10


def places_of(found: Found) -> Iterator[str]:
    """The letters that would be erased: a sentence for the store, and one for the archive."""
    stored = [f"{count:,} {state.value}" for state, count in sorted(found.stored.items())]
    if stored:
        yield f"In the store: {', '.join(stored)}."
    if found.archived and found.archived.own:
        segments = [f"{count:,} in {segment}" for segment, count in found.archived.own.items()]
        yield f"In the archive: {_some(segments)}."


def question(found: Found) -> str:
    """The question before an erasure."""
    texts = f", and a value in {counted(found.mentions, 'other text')}" if found.mentions else ""
    return f"Erase {_letters(found.letters)}{texts}, for ever?"


def result_of(result: Erased) -> str:
    """What an erasure has done."""
    said = f"Erased {_letters(result.stored)} in the store"
    if result.archived:
        segments = counted(len(result.segments), "segment was", "segments were")
        said += f" and {result.archived:,} in the archive, where {segments} replaced"
    if result.mentions:
        said += f"; replaced the value in {counted(result.mentions, 'other text')}"
    return f"{said}."


def remarks(found: Found, command: Command) -> Iterator[str]:
    """What a person has to do elsewhere.

    :param command: makes the command line of another command.
    """
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
