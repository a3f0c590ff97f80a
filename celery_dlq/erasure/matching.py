"""Finds the letters of a person by their messages, the current one and those before each edit: by
conditions on the arguments, such as ``args.user_id=7``. Letters in the files of the spool are left there:
a drain moves them into the store."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from celery_dlq.errors import PayloadError, RepairError
from celery_dlq.model.assignment import Assignment, parse_assignment
from celery_dlq.model.letter import DeadLetter, Envelope
from celery_dlq.redrive.contents import is_same
from celery_dlq.redrive.payload import accepted_by, read_payload
from celery_dlq.settings.validation import is_number
from celery_dlq.spool import decode, look
from celery_dlq.store.archive.lines import Line, envelopes_of
from celery_dlq.store.rows.rows import stored_id

#: Names of the positional parameters of a task, in order; None if the task is unknown.
Parameters = Sequence[str] | None


class UnknownParameters(Exception):
    """The argument may be a positional one, whose names are unknown."""


@dataclass(frozen=True)
class Condition:
    """A value that a message has at some place.

    ``args.user_id`` is the argument with that name, however it was passed; the other places are those of an
    assignment. A list at the place has the value if one of its items is the value.
    """

    wanted: Assignment

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read a condition.

        :raises RepairError: it is not one.
        """
        wanted = parse_assignment(text, "--where")
        if not wanted.written.strip():
            raise RepairError(f"--where {text}: write a value after the equals sign")
        return cls(wanted)

    @property
    def place(self) -> str:
        """The place of the value."""
        return self.wanted.place

    @property
    def text(self) -> str:
        """The value as a text."""
        value = self.wanted.value
        return value if isinstance(value, str) else self.wanted.written

    def holds(self, parts: Mapping[str, Any], parameters: Parameters) -> bool:
        """Whether a message has the value.

        :param parts: args, kwargs and headers of the message.
        :param parameters: of the message's task.
        :raises UnknownParameters: this depends on parameters that are unknown.
        """
        try:
            found = self._resolved(parts, parameters).find(parts)
        except LookupError:
            return False
        return self._is_value(found)

    def _resolved(self, parts: Mapping[str, Any], parameters: Parameters) -> Assignment:
        """The place in this message."""
        name, *inner = self.wanted.steps
        if self.wanted.root != "args" or isinstance(name, int) or name.isdecimal():
            return self.wanted
        if name in parts["kwargs"] or not parts["args"]:
            return replace(self.wanted, root="kwargs")
        if parameters is None:
            raise UnknownParameters
        if name not in parameters:
            raise LookupError(name)
        return replace(self.wanted, steps=(parameters.index(name), *inner))

    def _is_value(self, found: Any) -> bool:
        # Not by recursion: a message may be nested as deep as its sender likes.
        left = [found]
        while left:
            one = left.pop()
            if self._is_one(one):
                return True
            if isinstance(one, (list, tuple, set, frozenset)):
                left += one
        return False

    def _is_one(self, found: Any) -> bool:
        if is_number(found) and is_number(self.wanted.value):
            return bool(found == self.wanted.value)
        if isinstance(found, (list, tuple, set, frozenset)):
            return is_same(found, self.wanted.value)
        return is_same(found, self.wanted.value) or _text_of(found) == self.text


def _text_of(value: Any) -> str | None:
    """``value`` as a text; None if it has none. A message may hold any object."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the object's own method
        return None


class Matcher:
    """Says which letters are meant: those with one of some task ids, or those whose messages meet all
    conditions.

    :param accepted: the content types that may be decoded.
    :param parameters: returns the parameters of a task, given its name.
    """

    def __init__(
        self,
        ids: Iterable[str],
        conditions: Sequence[Condition],
        *,
        accepted: frozenset[str],
        parameters: Callable[[str], Parameters],
    ) -> None:
        self._ids, self._conditions = frozenset(map(stored_id, ids)), conditions
        self._accepted, self._parameters = accepted, parameters
        #: Letters that could not be read, by task id, each with the reason.
        self.unread: dict[str, str] = {}

    @classmethod
    def for_app(cls, app: Any, ids: Iterable[str], conditions: Sequence[Condition]) -> Matcher:
        """A matcher that reads what the workers of ``app`` read, and knows its tasks."""
        return cls(
            ids,
            conditions,
            accepted=accepted_by(app),
            parameters=lambda name: parameters_of(app, name),
        )

    def is_line(self, line: Line) -> bool:
        """Whether the letter of a line is meant."""
        letter = line["letter"]
        return self._is_meant(letter["task_id"], letter["task"], envelopes_of(line))

    def is_letter(self, letter: DeadLetter) -> bool:
        """Whether ``letter`` is meant."""
        return self._is_meant(letter.task_id, letter.task, [letter.envelope])

    def _is_meant(self, task_id: str, task: str, messages: Iterable[Envelope]) -> bool:
        if not self._conditions:
            return stored_id(task_id) in self._ids
        try:
            return any(self._meets_all(task, message) for message in messages)
        except UnknownParameters:
            self.unread[task_id] = (
                f"the app does not have its task {task}, so the names of its arguments are unknown"
            )
        except PayloadError as error:
            self.unread[task_id] = str(error)
        return False

    def _meets_all(self, task: str, message: Envelope) -> bool:
        payload = read_payload(message, self._accepted)
        parts = {"args": payload.args, "kwargs": payload.kwargs, "headers": message.headers}
        named = message.headers.get("task")
        parameters = self._parameters(named if isinstance(named, str) else task)
        return all(condition.holds(parts, parameters) for condition in self._conditions)


def parameters_of(app: Any, name: str) -> Parameters:
    """The positional parameters of a task of ``app``; None if the app does not have it."""
    task = app.tasks.get(name)
    if task is None:
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        found = inspect.signature(task.run).parameters.values()
    except (TypeError, ValueError):  # a callable that does not say what it takes
        return None
    return [one.name for one in found if one.kind in positional]


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
