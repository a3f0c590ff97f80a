"""Acts on one letter, from the buttons of its page."""

from __future__ import annotations

from celery_dlq.errors import OperationError
from celery_dlq.flower.acts import discard, leave_redrive, reach, read_orders, read_why
from celery_dlq.flower.filters import Given
from celery_dlq.flower.handler import Page
from celery_dlq.flower.problems import Refused
from celery_dlq.flower.request import first, sent
from celery_dlq.queue import DeadLetterQueue
from celery_dlq.states import State
from celery_dlq.store.base import Filter
from celery_dlq.view import times

REPLAYED = (
    "This form was sent before, or it is older than twelve hours or than this Flower. Nothing was changed "
    "now; look at the page again."
)


class LetterAct(Page):
    """``POST /dead-letters/letters/<id>/<act>``"""

    act = ""

    async def post(self, task_id: str) -> None:
        """Carry it out, once for each form."""
        given = sent(self.request)
        if not self.site.forms.take(first(given, "mark"), f"{self.act} {task_id}", self.actor):
            raise Refused(409, REPLAYED)
        who = self.actor
        done = await self.site.act(lambda queue: self.carry_out(queue, task_id, given, who))
        address = self.links.letter(task_id)
        self.see(f"{address}?{done}")

    def carry_out(self, queue: DeadLetterQueue, task_id: str, given: Given, who: str) -> str:
        """Do it; returns what the letter's page is told. Runs in a thread."""
        raise NotImplementedError


class RedriveLetter(LetterAct):
    """Send it back."""

    act = "redrive"

    def carry_out(self, queue: DeadLetterQueue, task_id: str, given: Given, who: str) -> str:
        """Make an operation of one letter."""
        wanted = _only(task_id, State.DEAD, State.REDRIVEN)
        found = reach(queue.store, self.act, wanted)
        _check_some(found.count, task_id, "redriven")
        made = leave_redrive(queue, found, read_orders(given), who)
        return f"done=redriven&operation={made.id}"


class DiscardLetter(LetterAct):
    """Close it."""

    act = "discard"

    def carry_out(self, queue: DeadLetterQueue, task_id: str, given: Given, who: str) -> str:
        """Close one letter, for a reason."""
        why = read_why(given)
        wanted = _only(task_id, State.DEAD, State.REDRIVEN, State.PARKED)
        _check_some(discard(queue, wanted, why, who), task_id, "discarded")
        return "done=discarded"


class UndiscardLetter(LetterAct):
    """Open it again."""

    act = "undiscard"

    def carry_out(self, queue: DeadLetterQueue, task_id: str, given: Given, who: str) -> str:
        """Open one letter."""
        wanted = Filter(ids=(task_id,), states=frozenset({State.DISCARDED}))
        done = queue.store.undiscard(wanted, who=who, now=times.utc_now())
        _check_some(done, task_id, "opened again")
        return "done=undiscarded"


class ReleaseLetter(LetterAct):
    """Let a parked retry run now."""

    act = "release"

    def carry_out(self, queue: DeadLetterQueue, task_id: str, given: Given, who: str) -> str:
        """Make one retry due."""
        done = queue.release(Filter(ids=(task_id,), states=frozenset({State.PARKED})), who=who)
        _check_some(done, task_id, "run now")
        return "done=released"


def _only(task_id: str, *states: State) -> Filter:
    return Filter(ids=(task_id,), states=frozenset(states))


def _check_some(count: int, task_id: str, done: str) -> None:
    if not count:
        raise OperationError(
            f"The letter {task_id} cannot be {done} in the state that it is in now; look at it again."
        )
