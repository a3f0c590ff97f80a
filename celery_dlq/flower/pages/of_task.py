"""What Flower's page of a task is told about its letter."""

from __future__ import annotations

import json

from celery_dlq.flower.handler import Page
from celery_dlq.letter import DeadLetter


class OfTask(Page):
    """``/dead-letters/of-task/<id>``, for the script on Flower's pages. A task without a letter is no
    error."""

    async def get(self, task_id: str) -> None:
        """The state of its letter, null when it has none."""
        letter = await self.site.ask(lambda store: store.get(task_id))
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(json.dumps(self._about(letter)))

    def _about(self, letter: DeadLetter | None) -> dict[str, str | None]:
        if letter is None:
            return {"state": None}
        return {"state": letter.state.value, "address": self.links.letter(letter.task_id)}
