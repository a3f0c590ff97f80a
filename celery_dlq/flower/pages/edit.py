"""Changing the message of a letter by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass

from celery_dlq.errors import RepairError
from celery_dlq.flower.handler import Page
from celery_dlq.flower.lookup import whole_letter
from celery_dlq.flower.pages.act import REPLAYED
from celery_dlq.flower.problems import Refused
from celery_dlq.flower.request import first, sent
from celery_dlq.queue import DeadLetterQueue
from celery_dlq.redrive.edit import read_text, text_to_edit


@dataclass(frozen=True, kw_only=True)
class EditView:
    """What the page shows."""

    task_id: str
    text: str
    mark: str
    problem: str = ""


class EditPage(Page):
    """``/dead-letters/letters/<id>/edit``: arguments and headers as JSON. Nothing is redacted, so only
    who may change them sees them."""

    async def get(self, task_id: str) -> None:
        """Show what may be changed."""
        if self.why_no_changes:
            raise Refused(403, self.why_no_changes)
        text = await self.site.act(lambda queue: _text_of(queue, task_id))
        self._show(task_id, text)

    async def post(self, task_id: str) -> None:
        """Change it."""
        given = sent(self.request)
        if not self.site.forms.take(first(given, "mark"), f"edit {task_id}", self.actor):
            raise Refused(409, REPLAYED)
        text, who = first(given, "text"), self.actor
        try:
            contents = read_text(text)
            await self.site.act(lambda queue: queue.edit(task_id, who=who, **contents))
        except RepairError as error:
            self._show(task_id, text, str(error))
            return
        self.see(f"{self.links.letter(task_id)}?done=edited")

    def _show(self, task_id: str, text: str, problem: str = "") -> None:
        mark = self.site.forms.mark(f"edit {task_id}", self.actor)
        view = EditView(task_id=task_id, text=text, mark=mark, problem=problem)
        self.page("edit", view, 400 if problem else 200)


def _text_of(queue: DeadLetterQueue, task_id: str) -> str:
    text = text_to_edit(queue.app, whole_letter(queue.store, task_id))
    return "".join(map(_seen, text))


def _seen(char: str) -> str:
    # Of JSON, such characters are in strings only, where they can be written out.
    return char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1]
