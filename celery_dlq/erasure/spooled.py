"""Finds letters in the files of the spool. They are left there: a drain moves them into the store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from celery_dlq.erasure.matching import Matcher
from celery_dlq.model.letter import DeadLetter
from celery_dlq.spool import decode, look


@dataclass(frozen=True, kw_only=True)
class SpooledLetters:
    """Letters in one file."""

    #: The name of the file.
    name: str
    letters: int
    #: Lines that cannot be read, and may hold such letters.
    unread: int


def spooled(directory: Path, matcher: Matcher) -> Iterator[SpooledLetters]:
    """The files that hold such letters, or lines that cannot be read.

    :raises OSError: the directory cannot be read.
    """
    for file in look(directory):
        with contextlib.suppress(FileNotFoundError):  # just drained
            found = _letters_in(directory / file.name, matcher)
            if found.letters or found.unread:
                yield found


def _letters_in(path: Path, matcher: Matcher) -> SpooledLetters:
    letters = unread = 0
    with path.open("rb") as file:
        for line in file:
            try:
                record = decode(line)
            except ValueError:
                unread += 1
                continue
            letters += isinstance(record, DeadLetter) and matcher.is_letter(record)
    return SpooledLetters(name=path.name, letters=letters, unread=unread)
