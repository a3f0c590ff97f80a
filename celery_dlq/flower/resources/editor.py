"""The editor of a letter's message: the texts of its parts, their problems, and the change that they would
make."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from celery_dlq.flower.http.handler import Handler, Refused, problem_of
from celery_dlq.flower.http.request import Given, first_value, reason_in
from celery_dlq.flower.resources.letter_acts import has_been_redriven_often, redrive_one
from celery_dlq.model.letter import DeadLetter
from celery_dlq.redrive.letter.checks import Call
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
    digest: str
    #: The reason for the audit, and whether it is redriven beyond its limit.
    why: str = ""
    again: bool = False

    @classmethod
    def of_form(cls, given: Given) -> Draft:
        """The draft in a form."""
        return cls(
            texts={name: first_value(given, name).replace("\r\n", "\n") for name in PARTS},
            digest=first_value(given, "seen"),
            why=reason_in(given),
            again=bool(first_value(given, "again")),
        )

    def rows(self, name: str) -> int:
        """The lines of the field of a part."""
        return min(_MOST, max(_LEAST, self.texts[name].count("\n") + 1))

    def read(self) -> tuple[Contents, dict[str, str]]:
        """The contents of the parts that can be read, and the problems of the others."""
        contents, problems = dict[str, Any](), dict[str, str]()
        for name, text in self.texts.items():
            try:
                contents[name] = read_part(name, text)
            except RepairError as error:  # noqa: PERF203 - there are three
                problems[name] = f"{error}."
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
    #: The names of the parameters of the task; None if they are unknown here.
    parameters: Sequence[str] | None
    #: Why the task cannot be called with the arguments; empty if it can, and if they cannot be read.
    misfit: str
    #: Whether a redrive needs ``again``.
    often: bool

    @property
    def shows_headers(self) -> bool:
        """Whether the headers have a problem or a change."""
        changes = any(line[2:].startswith("headers.") for line in self.diff.splitlines())
        return changes or "headers" in self.problems or "headers." in self.problem


class EditPage(Handler):
    """``/dead-letters/letters/<id>/edit``: arguments and headers as JSON. Nothing is redacted, so only users
    who may change them can see them."""

    async def get(self, task_id: str) -> None:
        """Show the arguments and headers."""
        self.check_act()
        view = await self.site.consult(lambda queue: check(queue, task_id, None))
        self.page("edit", view, refusal="")

    async def post(self, task_id: str) -> None:
        """Check the draft, or save it, or save it and send the letter."""
        given = self.values()
        does = first_value(given, "do", "save")
        if does not in _DOES:
            raise FilterError(f"do must be {', '.join(_DOES)}, not {clip(does, 40)!r}.")
        draft = Draft.of_form(given)
        try:
            await self._do(does, task_id, draft, given)
        except StoreError as error:
            # The page has the texts as they were typed, and nothing of the letter.
            self.log_exception(type(error), error, error.__traceback__)
            problem = problem_of(error, 503).text
            is_saving = does != "check"
            self.page(
                "unchecked", draft, 503, task_id=task_id, problem=problem, is_saving=is_saving
            )

    async def _do(self, does: str, task_id: str, draft: Draft, given: Given) -> None:
        if does == "check":
            # It changes nothing, so its form may be sent again.
            await self._check(task_id, draft)
            return
        try:
            self.take_mark(given, f"edit {task_id}")
        except Refused:
            # The text of the form must not be lost.
            await self._check(task_id, draft, _STALE, 409)
            return
        who = self.actor
        try:
            await self.site.act(lambda queue: save(queue, task_id, draft, who=who))
        except RepairError as error:
            status = 409 if isinstance(error, MessageChanged) else 400
            await self._check(task_id, draft, str(error), status)
            return
        if does == "redrive":
            await self._redrive(task_id, given)
        else:
            self.see(f"{self.links.letter(task_id)}?done=edited")

    async def _redrive(self, task_id: str, given: Given) -> None:
        """Send the letter, whose message was saved. If it was not sent, or that is unknown, the page says
        so."""
        who = self.actor
        try:
            made = await self.site.act(lambda queue: redrive_one(queue, task_id, given, who))
        except (OperationError, OrdersError) as error:
            self.page("saved", task_id, 409, why_not=str(error), is_sure=True)
        except StoreError as error:
            self.page("saved", task_id, 503, why_not=hide_known(str(error)), is_sure=False)
        else:
            done = f"done=edited-redriven&operation={made.id}"
            self.see(f"{self.links.letter(task_id)}?{done}")

    async def _check(
        self, task_id: str, draft: Draft, refusal: str = "", status: int = 200
    ) -> None:
        """Show the editor with ``draft``.

        :param refusal: why the form was not accepted.
        """
        view = await self.site.consult(lambda queue: check(queue, task_id, draft))
        self.page("edit", view, status, refusal=refusal)


def check(queue: DeadLetterQueue, task_id: str, draft: Draft | None) -> EditView:
    """Check a draft. Nothing is changed.

    :param draft: None for the message as it is.
    :raises UnknownLetter: no letter has this id.
    :raises RepairError: the letter is not dead, or its message cannot be edited.
    """
    letter = lookup.letter(queue.store, task_id)
    digest = digest_of(letter.envelope)
    if draft is None:
        found = contents_to_edit(queue.app, letter)
        draft = Draft(texts={name: _escaped(text_of(found[name])) for name in PARTS}, digest=digest)
    contents, problems = draft.read()
    diff, problem = ("", "") if problems else _change(queue, letter, contents)
    is_outdated, name = draft.digest != digest, task_of(letter)
    task = queue.redrive_context.app.tasks.get(name)
    call = None if task is None else Call(task)
    is_read = {"args", "kwargs"} <= contents.keys()
    return EditView(
        task_id=letter.task_id,
        task=name,
        draft=draft,
        problems=problems,
        problem=f"{_who_changed(queue, letter, draft)} {_OPEN_AGAIN}" if is_outdated else problem,
        is_outdated=is_outdated,
        diff=diff,
        parameters=call.parameters if call else None,
        misfit=call.misfit(contents["args"], contents["kwargs"]) if call and is_read else "",
        often=has_been_redriven_often(letter),
    )


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
        queue.edit(task_id, who=who, why=draft.why, seen=draft.digest, **contents)
    except MessageChanged as error:
        letter = lookup.letter(queue.store, task_id)
        changed = _who_changed(queue, letter, draft)
        raise MessageChanged(f"{changed} Nothing was saved. {_OPEN_AGAIN}") from error
    except NothingChanged as error:
        raise NothingChanged(_NOTHING) from error
    except RepairError as error:
        raise RepairError(f"Nothing was saved: {error}.") from error


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


def _who_changed(queue: DeadLetterQueue, letter: DeadLetter, draft: Draft) -> str:
    """Who has replaced the message that the editor was opened with, for people."""
    changes = queue.store.edits.of_letter(letter.task_id)
    by = [one for one in changes if digest_of(one.before) == draft.digest]
    said = "This message has changed since you opened the editor."
    if by:
        ago = times.age(by[-1].at, times.utc_now())
        said = f"{clip(by[-1].who, 60)} changed this message {ago}."
    return said


def _escaped(text: str) -> str:
    # In JSON, such characters occur only in strings, where they can be escaped.
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text
    )
