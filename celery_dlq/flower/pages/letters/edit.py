"""The page that edits the message of a letter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.errors import (
    FilterError,
    MessageChanged,
    OperationError,
    OrdersError,
    RepairError,
    StoreError,
)
from celery_dlq.flower.acts import reason_in, redrive_one
from celery_dlq.flower.filters import Given
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.problems import Refused, problem_of
from celery_dlq.flower.http.request import first, sent
from celery_dlq.flower.pages.letters.draft import Checked, Draft, check, opened, read_draft, save
from celery_dlq.redact import clip, hide_known

T = TypeVar("T")

_STALE = (
    "This form was already sent, is older than twelve hours, or is from before the last restart of Flower. "
    "It changed nothing. Look at the message again, then save it."
)

#: What the buttons of the form do; Enter in a field presses the first.
_DOES = ("check", "save", "redrive")


@dataclass(frozen=True, kw_only=True)
class EditView:
    """The values of the page."""

    checked: Checked
    mark: str
    #: Why it was not saved; the problem of a draft that was only checked is in ``checked``.
    problem: str = ""
    why: str = ""
    again: bool = False


@dataclass(frozen=True, kw_only=True)
class UncheckedView:
    """The values of the page after the store has failed. It has the texts as they were typed, and nothing of
    the letter."""

    task_id: str
    problem: str
    #: Whether the message was to be saved, and may have been.
    is_saving: bool
    draft: Draft
    why: str
    again: bool


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
        self._show(await self._look(lambda queue: opened(queue, task_id)))

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
                draft=read_draft(given),
                why=reason_in(given),
                again=bool(first(given, "again")),
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
        who, why, draft = self.actor, reason_in(given), read_draft(given)
        try:
            await self.site.act(lambda queue: save(queue, task_id, draft, who=who, why=why))
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
        self, task_id: str, given: Given, problem: str = "", status: int = 200
    ) -> None:
        draft = read_draft(given)
        checked = await self._look(lambda queue: check(queue, task_id, draft))
        self._show(checked, given, problem, status)

    async def _look(self, work: Callable[[DeadLetterQueue], T]) -> T:
        return await self.site.calls.run(lambda: work(self.site.queue()))

    def _show(
        self, checked: Checked, given: Given | None = None, problem: str = "", status: int = 200
    ) -> None:
        given = given or {}
        view = EditView(
            checked=checked,
            mark=self.mark(f"edit {checked.task_id}"),
            problem=problem,
            why=reason_in(given),
            again=bool(first(given, "again")),
        )
        self.page("edit", view, status)
