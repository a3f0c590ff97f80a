"""A message in the editor: the texts of its parts, their problems, and the change that they would make."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.errors import MessageChanged, NothingChanged, RepairError
from celery_dlq.flower.acts import has_been_redriven_often
from celery_dlq.flower.filters import Given
from celery_dlq.flower.http.request import first
from celery_dlq.model.letter import DeadLetter
from celery_dlq.redact import clip
from celery_dlq.redrive.contents import Contents
from celery_dlq.redrive.edit import (
    PARTS,
    contents_to_edit,
    digest_of,
    make_edit,
    read_part,
    text_of,
)
from celery_dlq.redrive.payload import task_of
from celery_dlq.view import lookup, times
from celery_dlq.view.signature import Signature, signature_of

_OPEN_AGAIN = "Copy what you need, and open the editor again."

_NOTHING = (
    "Nothing was changed, so nothing was saved. To send the message as it is, redrive the letter on its "
    "page."
)

#: The fewest and the most lines of a field.
_LEAST, _MOST = 3, 24


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A message as the form has it."""

    #: JSON by the names of ``PARTS``.
    texts: Mapping[str, str]
    #: The digest of the message that the editor was opened with.
    seen: str

    def rows(self, name: str) -> int:
        """The lines of the field of a part."""
        return min(_MOST, max(_LEAST, self.texts[name].count("\n") + 1))

    def read(self) -> tuple[Contents, dict[str, str]]:
        """The contents of the parts that can be read, and the problems of the others."""
        read = {name: _read(name, text) for name, text in self.texts.items()}
        problems = {name: problem for name, (_, problem) in read.items() if problem}
        contents = {name: value for name, (value, problem) in read.items() if not problem}
        return contents, problems


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A draft with its letter and the task."""

    task_id: str
    task: str
    draft: Draft
    #: Problems of single parts, by name.
    problems: Mapping[str, str]
    #: Why the message as a whole cannot be saved; otherwise empty.
    problem: str
    #: Whether another person has changed the message since the editor was opened.
    is_outdated: bool
    #: The change, as lines of a diff with secrets hidden; empty for none.
    diff: str
    #: None if this process does not have the code of the task, or the arguments cannot be read.
    signature: Signature | None
    is_task_known: bool
    #: Whether a redrive needs ``again``.
    often: bool

    @property
    def shows_headers(self) -> bool:
        """Whether the headers have a problem or a change."""
        changes = any(line[2:].startswith("headers.") for line in self.diff.splitlines())
        return changes or "headers" in self.problems or "headers." in self.problem


def opened(queue: DeadLetterQueue, task_id: str) -> Checked:
    """The message of a letter, for its editor.

    :raises UnknownLetter: no letter has this id.
    :raises RepairError: it is not dead, or its message cannot be edited.
    """
    letter = lookup.letter(queue.store, task_id)
    contents = contents_to_edit(queue.app, letter)
    texts = {name: _seen(text_of(contents[name])) for name in PARTS}
    return _with_its_task(queue, letter, Draft(texts=texts, seen=digest_of(letter.envelope)))


def read_draft(given: Given) -> Draft:
    """The draft in a form."""
    texts = {name: first(given, name).replace("\r\n", "\n") for name in PARTS}
    return Draft(texts=texts, seen=first(given, "seen"))


def check(queue: DeadLetterQueue, task_id: str, draft: Draft) -> Checked:
    """Check a draft. Nothing is changed.

    :raises UnknownLetter: no letter has this id.
    """
    return _with_its_task(queue, lookup.letter(queue.store, task_id), draft)


def save(queue: DeadLetterQueue, task_id: str, draft: Draft, *, who: str, why: str) -> None:
    """Make the draft the message of its letter.

    :raises UnknownLetter: no letter has this id.
    :raises MessageChanged: its message is not the one that the editor was opened with.
    :raises RepairError: the draft has a problem, or changes nothing.
    """
    contents, problems = draft.read()
    if problems:
        raise RepairError("Nothing was saved; fix the parts that have a problem.")
    try:
        queue.edit(task_id, who=who, why=why, seen=draft.seen, **contents)
    except MessageChanged as error:
        letter = lookup.letter(queue.store, task_id)
        changed = _who_changed(queue, letter, draft)
        raise MessageChanged(f"{changed} Nothing was saved. {_OPEN_AGAIN}") from error
    except NothingChanged as error:
        raise NothingChanged(_NOTHING) from error
    except RepairError as error:
        raise RepairError(f"Nothing was saved: {error}.") from error


def _read(name: str, text: str) -> tuple[Any, str]:
    """The value of a part, and its problem."""
    try:
        return read_part(name, text), ""
    except RepairError as error:
        return None, f"{error}."


def _with_its_task(queue: DeadLetterQueue, letter: DeadLetter, draft: Draft) -> Checked:
    contents, problems = draft.read()
    diff, problem = ("", "") if problems else _change(queue, letter, contents)
    is_outdated = draft.seen != digest_of(letter.envelope)
    task = task_of(letter)
    return Checked(
        task_id=letter.task_id,
        task=task,
        draft=draft,
        problems=problems,
        problem=f"{_who_changed(queue, letter, draft)} {_OPEN_AGAIN}" if is_outdated else problem,
        is_outdated=is_outdated,
        diff=diff,
        signature=_signature(queue, task, contents),
        is_task_known=task in queue.redrive_context.app.tasks,
        often=has_been_redriven_often(letter),
    )


def _change(queue: DeadLetterQueue, letter: DeadLetter, contents: Contents) -> tuple[str, str]:
    """The diff of an edit, and why it cannot be made."""
    try:
        edit = make_edit(
            queue.app, letter, contents, queue.redactor, who="", at=letter.last_failed_at
        )
    except NothingChanged:
        return "", ""
    except RepairError as error:
        return "", f"It cannot be saved: {error}."
    return edit.diff, ""


def _signature(queue: DeadLetterQueue, name: str, contents: Contents) -> Signature | None:
    task = queue.redrive_context.app.tasks.get(name)
    if task is None or not {"args", "kwargs"} <= contents.keys():
        return None
    return signature_of(task, contents["args"], contents["kwargs"], queue.redactor)


def _who_changed(queue: DeadLetterQueue, letter: DeadLetter, draft: Draft) -> str:
    """Who has replaced the message that the editor was opened with, for people."""
    changes = queue.store.edits.of_letter(letter.task_id)
    by = [one for one in changes if digest_of(one.before) == draft.seen]
    said = "This message has changed since you opened the editor."
    if by:
        ago = times.age(by[-1].at, times.utc_now())
        said = f"{clip(by[-1].who, 60)} changed this message {ago}."
    return said


def _seen(text: str) -> str:
    # In JSON, such characters occur only in strings, where they can be escaped.
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text
    )
