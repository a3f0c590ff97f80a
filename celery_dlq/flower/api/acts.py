"""Acts on letters, by REST. What is named by ids is meant; a filter needs the number of its letters."""

from __future__ import annotations

from celery_dlq.flower.acts import (
    ORDERS,
    Reach,
    discard,
    leave_redrive,
    reach,
    read_orders,
    read_why,
)
from celery_dlq.flower.calls import NotYet
from celery_dlq.flower.filters import Given, frozen, read_filter
from celery_dlq.flower.handler import Api
from celery_dlq.flower.problems import Refused
from celery_dlq.flower.request import first, sent_json
from celery_dlq.view import records, times


class Act(Api):
    """``POST`` with a JSON object of filters, and of what the act needs."""

    act = ""
    beside: tuple[str, ...] = ("number",)

    async def post(self) -> None:
        """Carry it out."""
        given = sent_json(self.request)
        now = times.utc_now()
        wanted = frozen(read_filter(given, now, beside=self.beside), now)
        self.check(given)
        found = await self.site.ask(lambda store: reach(store, self.act, wanted))
        _check_agreed(found, first(given, "number"))
        await self.carry_out(found, given)

    def check(self, given: Given) -> None:
        """Look for what makes no sense, before any letter is looked for."""
        raise NotImplementedError

    async def carry_out(self, found: Reach, given: Given) -> None:
        """Do it, and answer."""
        raise NotImplementedError


class Redrive(Act):
    """``POST /api/dead-letters/redrive``"""

    act = "redrive"
    beside = ("number", *ORDERS)

    def check(self, given: Given) -> None:
        """Its orders."""
        read_orders(given)

    async def carry_out(self, found: Reach, given: Given) -> None:
        """Make an operation, which a worker carries out."""
        orders, who = read_orders(given), self.actor
        made = await self.site.act(lambda queue: leave_redrive(queue, found, orders, who))
        self.set_header("Location", self.links.api("operations", made.id))
        self.reply(records.operation_record(made), 202)


class Discard(Act):
    """``POST /api/dead-letters/discard``"""

    act = "discard"
    beside = ("number", "why")

    def check(self, given: Given) -> None:
        """Its reason."""
        read_why(given)

    async def carry_out(self, found: Reach, given: Given) -> None:
        """Close the letters."""
        why, who = read_why(given), self.actor
        try:
            done = await self.site.act(lambda queue: discard(queue, found.wanted, why, who))
        except NotYet:
            self.reply({"discarded": None, "text": "It has begun and goes on."}, 202)
        else:
            self.reply({"discarded": done})


def _check_agreed(found: Reach, number: str) -> None:
    """Check that as many letters are meant as there are.

    :raises Refused: other letters would be taken than was thought.
    """
    if not found.count:
        raise Refused(409, "No letter is left that this could be done with.", number=0)
    if (number or found.wanted.ids) and number in {"", str(found.count)}:
        return
    if not number:
        raise Refused(
            409,
            f"The filter finds {found.count:,} letters; repeat the request with their number: "
            f'"number": {found.count}.',
            number=found.count,
        )
    raise Refused(
        409,
        f"The filter finds {found.count:,} letters, not {number[:20]}. Nothing was changed.",
        number=found.count,
    )
