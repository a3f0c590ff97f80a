"""The buttons of a letter's page."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.flower.acts import check_some, discard, only, redrive_one
from celery_dlq.flower.filters import Given
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.request import sent
from celery_dlq.model.states import State
from celery_dlq.view import times


class LetterAct(Page):
    """``POST /dead-letters/letters/<id>/<act>``"""

    async def post(self, task_id: str) -> None:
        """Run the act, once per form."""
        given = sent(self.request)
        self.take_mark(given, f"{self.act} {task_id}")
        carry_out, who = _ACTS[self.act], self.actor
        done = await self.site.act(lambda queue: carry_out(queue, task_id, given, who))
        self.see(f"{self.links.letter(task_id)}?{done}")


def _redrive(queue: DeadLetterQueue, task_id: str, given: Given, who: str) -> str:
    """Create an operation of one letter."""
    return f"done=redriven&operation={redrive_one(queue, task_id, given, who).id}"


def _discard(queue: DeadLetterQueue, task_id: str, given: Given, who: str) -> str:
    """Discard it, with a reason."""
    wanted = only(task_id, State.DEAD, State.REDRIVEN, State.PARKED)
    check_some(discard(queue, wanted, given, who), task_id, "discarded")
    return "done=discarded"


def _undiscard(queue: DeadLetterQueue, task_id: str, _given: Given, who: str) -> str:
    """Reopen it."""
    wanted = only(task_id, State.DISCARDED)
    done = queue.store.closing.undiscard(wanted, who=who, now=times.utc_now())
    check_some(done, task_id, "reopened")
    return "done=undiscarded"


def _release(queue: DeadLetterQueue, task_id: str, _given: Given, who: str) -> str:
    """Make a parked retry due now."""
    done = queue.release(only(task_id, State.PARKED), who=who)
    check_some(done, task_id, "run now")
    return "done=released"


#: Each makes the change, in a thread, and returns the query string for the letter's page.
_ACTS: Mapping[str, Callable[[DeadLetterQueue, str, Given, str], str]] = {
    "redrive": _redrive,
    "discard": _discard,
    "undiscard": _undiscard,
    "release": _release,
}
