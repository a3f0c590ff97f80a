"""REST: redrive, discard and delete. A request with a filter must also give the number of letters that it
matches; one with ids need not."""

from __future__ import annotations

from functools import partial

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.api.retention import check_reason, deletable
from celery_dlq.errors import OpenLetters
from celery_dlq.flower.acts import (
    ORDERS,
    Reach,
    discard,
    discardable,
    leave_redrive,
    reach,
    read_orders,
    read_why,
    reason_in,
)
from celery_dlq.flower.filters import Given, Take, choice, frozen
from celery_dlq.flower.http.calls import NotYet
from celery_dlq.flower.http.handler import Api
from celery_dlq.flower.http.problems import Refused
from celery_dlq.flower.http.request import first, sent_json
from celery_dlq.redrive.plan import redrivable
from celery_dlq.store.base import Filter
from celery_dlq.view import records
from celery_dlq.view.text import counted


class Act(Api):
    """``POST`` with a JSON object: filters, and the fields of the act."""

    fields: tuple[str, ...] = ("number",)

    async def post(self) -> None:
        """Run the act."""
        given = sent_json(self.request)
        wanted = self.filter_in(given, others=self.fields)
        self.check(given)
        take = self.take(given)
        found = await self.site.ask_primary(
            lambda store: reach(store, frozen(store, wanted, take), take)
        )
        _check_number(found, first(given, "number"))
        await self.carry_out(found, given)

    def check(self, given: Given) -> None:
        """Check the fields of the act, before letters are counted."""
        raise NotImplementedError

    def take(self, given: Given) -> Take:
        """How the act narrows a filter."""
        raise NotImplementedError

    async def carry_out(self, found: Reach, given: Given) -> None:
        """Make the change, and answer."""
        raise NotImplementedError


class Redrive(Act):
    """``POST /api/dead-letters/redrive``"""

    act = "redrive"
    fields = ("number", *ORDERS)

    def check(self, given: Given) -> None:
        """Check the orders."""
        read_orders(given)

    def take(self, _given: Given) -> Take:
        """A redrive takes dead letters, and redriven ones by name."""
        return redrivable

    async def carry_out(self, found: Reach, given: Given) -> None:
        """Create an operation, which a worker runs."""
        orders, who = read_orders(given), self.actor
        made = await self.site.act(lambda queue: leave_redrive(queue, found, orders, who))
        self.set_header("Location", self.links.api("operations", made.id))
        self.reply(records.operation_record(made), 202)


class Ending(Act):
    """An act that this process carries out itself, and no worker."""

    #: The act as a noun, and the name of its count in the answer.
    noun = done = ""

    async def carry_out(self, found: Reach, given: Given) -> None:
        """Run the act."""
        who = self.actor
        try:
            count = await self.site.act(lambda queue: self.end(queue, found.wanted, given, who))
        except NotYet:
            text = f"The {self.noun} has started and continues."
            self.reply({self.done: None, "text": text}, 202)
        else:
            self.reply({self.done: count})

    def end(self, queue: DeadLetterQueue, wanted: Filter, given: Given, who: str) -> int:
        """Make the change, in a thread; returns the number of letters."""
        raise NotImplementedError


class Discard(Ending):
    """``POST /api/dead-letters/discard``"""

    act = noun = "discard"
    done = "discarded"
    fields = ("number", "why")

    def check(self, given: Given) -> None:
        """Check the reason."""
        read_why(given)

    def take(self, _given: Given) -> Take:
        """A discard takes dead letters, and redriven and parked ones by name."""
        return discardable

    def end(self, queue: DeadLetterQueue, wanted: Filter, given: Given, who: str) -> int:
        """Discard the letters."""
        return discard(queue, wanted, given, who)


class Delete(Ending):
    """``POST /api/dead-letters/delete``"""

    act, noun, done = "delete", "deletion", "deleted"
    fields = ("number", "why", "open")

    async def post(self) -> None:
        """Delete letters.

        :raises Refused: open letters would be deleted by mistake or without a reason.
        """
        try:
            await super().post()
        except OpenLetters as error:
            raise Refused(400, f'{error} Add "open": true and a "why".') from None

    def check(self, given: Given) -> None:
        """Check the reason."""
        check_reason(reason_in(given), is_open=choice(given, "open"))

    def take(self, given: Given) -> Take:
        """A deletion takes closed letters, or open ones if ``open`` is true."""
        return partial(deletable, is_open=choice(given, "open"))

    def end(self, queue: DeadLetterQueue, wanted: Filter, given: Given, who: str) -> int:
        """Delete the letters."""
        return queue.delete(wanted, who=who, why=reason_in(given), is_open=choice(given, "open"))


def _check_number(found: Reach, number: str) -> None:
    """Check that ``number`` is the number of letters that the act would take.

    :raises Refused: it is missing or different, or there are no letters.
    """
    if not found.count:
        raise Refused(409, "No matching letter is left.", number=0)
    if (number or found.wanted.ids) and number in {"", str(found.count)}:
        return
    if not number:
        raise Refused(
            409,
            f"The filter matches {counted(found.count, 'letter')}; repeat the request with this number: "
            f'"number": {found.count}.',
            number=found.count,
        )
    raise Refused(
        409,
        f"The filter matches {counted(found.count, 'letter')}, not {number[:20]}. Nothing was changed.",
        number=found.count,
    )
