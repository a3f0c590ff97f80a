"""The page that edits the message of a letter."""

from __future__ import annotations

import json
from dataclasses import dataclass

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.errors import RepairError
from celery_dlq.flower.acts import reason_in
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.problems import Refused
from celery_dlq.flower.http.request import first, sent
from celery_dlq.redrive.repair.edit import read_text, text_to_edit
from celery_dlq.view import lookup


@dataclass(frozen=True, kw_only=True)
class EditView:
    """The values of the page."""

    task_id: str
    text: str
    mark: str
    problem: str = ""
    why: str = ""


class EditPage(Page):
    """``/dead-letters/letters/<id>/edit``: arguments and headers as JSON. Nothing is redacted, so only users
    who may change them can see them."""

    async def get(self, task_id: str) -> None:
        """Show the arguments and headers."""
        if self.why_no_changes:
            raise Refused(403, self.why_no_changes)
        text = await self.site.act(lambda queue: _text_of(queue, task_id))
        self._show(task_id, text)

    async def post(self, task_id: str) -> None:
        """Change the message."""
        given = sent(self.request)
        self.take_mark(given, f"edit {task_id}")
        text, who, why = first(given, "text"), self.actor, reason_in(given)
        try:
            contents = read_text(text)
            await self.site.act(lambda queue: queue.edit(task_id, who=who, why=why, **contents))
        except RepairError as error:
            self._show(task_id, text, str(error), why)
            return
        self.see(f"{self.links.letter(task_id)}?done=edited")

    def _show(self, task_id: str, text: str, problem: str = "", why: str = "") -> None:
        mark = self.mark(f"edit {task_id}")
        view = EditView(task_id=task_id, text=text, mark=mark, problem=problem, why=why)
        self.page("edit", view, 400 if problem else 200)


def _text_of(queue: DeadLetterQueue, task_id: str) -> str:
    text = text_to_edit(queue.app, lookup.letter(queue.store, task_id))
    return "".join(map(_seen, text))


def _seen(char: str) -> str:
    # In JSON, such characters occur only in strings, where they can be escaped.
    return char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1]
