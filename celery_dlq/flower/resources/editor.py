"""The editor of a letter's message: the texts of its parts, their problems, and the change that they would
make."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.base.redact import clip, hide_known
from celery_dlq.errors import (
    FilterError,
    MessageChanged,
    NothingChanged,
    OperationError,
    OrdersError,
    RepairError,
    StoreError,
)
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.problems import Refused, problem_of
from celery_dlq.flower.http.request import Given, first, reason_in, sent
from celery_dlq.flower.resources.letter_acts import has_been_redriven_often, redrive_one
from celery_dlq.model.letter import DeadLetter
from celery_dlq.redrive.letter.contents import Contents
from celery_dlq.redrive.letter.edit import (
    PARTS,
    contents_to_edit,
    digest_of,
    make_edit,
    read_part,
    text_of,
)
from celery_dlq.redrive.letter.payload import task_of
from celery_dlq.view import lookup, times
from celery_dlq.view.signature import Signature, signature_of

_STALE = (
    "This form was already sent, is older than twelve hours, or is from before the last restart of Flower. "
    "It changed nothing. Look at the message again, then save it."
)

#: What the buttons of the form do; Enter in a field presses the first.
_DOES = ("check", "save", "redrive")

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
    #: The reason for the audit, and whether it is redriven beyond its limit.
    why: str = ""
    again: bool = False

    @classmethod
    def sent(cls, given: Given) -> Draft:
        """The draft in a form."""
        return cls(
            texts={name: first(given, name).replace("\r\n", "\n") for name in PARTS},
            seen=first(given, "seen"),
            why=reason_in(given),
            again=bool(first(given, "again")),
        )

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
class EditView:
    """A draft with its letter and the task: the values of the page."""

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
    #: Why the form was not accepted; empty if the draft was only checked.
    refusal: str = ""

    @property
    def shows_headers(self) -> bool:
        """Whether the headers have a problem or a change."""
        changes = any(line[2:].startswith("headers.") for line in self.diff.splitlines())
        return changes or "headers" in self.problems or "headers." in self.problem


@dataclass(frozen=True, kw_only=True)
class UncheckedView:
    """The values of the page after the store has failed. It has the texts as they were typed, and nothing of
    the letter."""

    task_id: str
    problem: str
    #: Whether the message was to be saved, and may have been.
    is_saving: bool
    draft: Draft


@dataclass(frozen=True, kw_only=True)
class SavedView:
    """The values of the page after a message was saved and its letter was not sent."""

    task_id: str
    why_not: str
    #: Whether it is known that the letter was not sent.
    is_sure: bool


class EditPage(Page):
    """``/dead-letters/letters/<id>/edit``: arguments and headers as JSON. Nothing is redacted, so only users
    who may change them can see them."""

    async def get(self, task_id: str) -> None:
        """Show the arguments and headers."""
        if self.why_no_changes:
            raise Refused(403, self.why_no_changes)
        self.page("edit", await self.site.consult_now(lambda queue: opened(queue, task_id)))

    async def post(self, task_id: str) -> None:
        """Check the draft, or save it, or save it and send the letter."""
        given = sent(self.request)
        does = first(given, "do", "save")
        if does not in _DOES:
            raise FilterError(f"do must be {', '.join(_DOES)}, not {clip(does, 40)!r}.")
        try:
            await self._do(does, task_id, given)
        except StoreError as error:
            self.log_exception(type(error), error, error.__traceback__)
            view = UncheckedView(
                task_id=task_id,
                problem=problem_of(error, 503).text,
                is_saving=does != "check",
                draft=Draft.sent(given),
            )
            self.page("unchecked", view, 503)

    async def _do(self, does: str, task_id: str, given: Given) -> None:
        if does == "check":
            # It changes nothing, so its form may be sent again.
            await self._check(task_id, given)
            return
        try:
            self.take_mark(given, f"edit {task_id}")
        except Refused:
            # The text of the form must not be lost.
            await self._check(task_id, given, _STALE, 409)
            return
        who, draft = self.actor, Draft.sent(given)
        try:
            await self.site.act(lambda queue: save(queue, task_id, draft, who=who))
        except RepairError as error:
            status = 409 if isinstance(error, MessageChanged) else 400
            await self._check(task_id, given, str(error), status)
            return
        if does == "redrive":
            await self._redrive(task_id, given)
        else:
            self.see(f"{self.links.letter(task_id)}?done=edited")

    async def _redrive(self, task_id: str, given: Given) -> None:
        """Send the letter, whose message was saved."""
        who = self.actor
        try:
            made = await self.site.act(lambda queue: redrive_one(queue, task_id, given, who))
        except (OperationError, OrdersError) as error:
            self.page("saved", SavedView(task_id=task_id, why_not=str(error), is_sure=True), 409)
        except StoreError as error:
            why = hide_known(str(error))
            self.page("saved", SavedView(task_id=task_id, why_not=why, is_sure=False), 503)
        else:
            done = f"done=edited-redriven&operation={made.id}"
            self.see(f"{self.links.letter(task_id)}?{done}")

    async def _check(
        self, task_id: str, given: Given, refusal: str = "", status: int = 200
    ) -> None:
        draft = Draft.sent(given)
        checked = await self.site.consult_now(lambda queue: check(queue, task_id, draft))
        self.page("edit", replace(checked, refusal=refusal), status)


def opened(queue: DeadLetterQueue, task_id: str) -> EditView:
    """The message of a letter, for its editor.

    :raises UnknownLetter: no letter has this id.
    :raises RepairError: it is not dead, or its message cannot be edited.
    """
    letter = lookup.letter(queue.store, task_id)
    contents = contents_to_edit(queue.app, letter)
    texts = {name: _seen(text_of(contents[name])) for name in PARTS}
    return _with_its_task(queue, letter, Draft(texts=texts, seen=digest_of(letter.envelope)))


def check(queue: DeadLetterQueue, task_id: str, draft: Draft) -> EditView:
    """Check a draft. Nothing is changed.

    :raises UnknownLetter: no letter has this id.
    """
    return _with_its_task(queue, lookup.letter(queue.store, task_id), draft)


def save(queue: DeadLetterQueue, task_id: str, draft: Draft, *, who: str) -> None:
    """Make the draft the message of its letter.

    :raises UnknownLetter: no letter has this id.
    :raises MessageChanged: its message is not the one that the editor was opened with.
    :raises RepairError: the draft has a problem, or changes nothing.
    """
    contents, problems = draft.read()
    if problems:
        raise RepairError("Nothing was saved; fix the parts that have a problem.")
    try:
        queue.edit(task_id, who=who, why=draft.why, seen=draft.seen, **contents)
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


def _with_its_task(queue: DeadLetterQueue, letter: DeadLetter, draft: Draft) -> EditView:
    contents, problems = draft.read()
    diff, problem = ("", "") if problems else _change(queue, letter, contents)
    is_outdated = draft.seen != digest_of(letter.envelope)
    task = task_of(letter)
    return EditView(
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
