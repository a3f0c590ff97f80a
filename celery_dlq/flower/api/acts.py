"""REST: redrive and discard. A request with a filter must also give the number of letters that it matches;
one with ids need not."""

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
from celery_dlq.flower.filters import Given, frozen, read_filter
from celery_dlq.flower.http.calls import NotYet
from celery_dlq.flower.http.handler import Api
from celery_dlq.flower.http.problems import Refused
from celery_dlq.flower.http.request import first, sent_json
from celery_dlq.view import records, times


class Act(Api):
    """``POST`` with a JSON object: filters, and the fields of the act."""

    fields: tuple[str, ...] = ("number",)

    async def post(self) -> None:
        """Run the act."""
        given = sent_json(self.request)
        wanted = read_filter(given, times.utc_now(), others=self.fields)
        self.check(given)
        found = await self.site.ask(lambda store: reach(store, self.act, frozen(store, wanted)))
        _check_number(found, first(given, "number"))
        await self.carry_out(found, given)

    def check(self, given: Given) -> None:
        """Check the fields of the act, before letters are counted."""
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

    async def carry_out(self, found: Reach, given: Given) -> None:
        """Create an operation, which a worker runs."""
        orders, who = read_orders(given), self.actor
        made = await self.site.act(lambda queue: leave_redrive(queue, found, orders, who))
        self.set_header("Location", self.links.api("operations", made.id))
        self.reply(records.operation_record(made), 202)


class Discard(Act):
    """``POST /api/dead-letters/discard``"""

    act = "discard"
    fields = ("number", "why")

    def check(self, given: Given) -> None:
        """Check the reason."""
        read_why(given)

    async def carry_out(self, found: Reach, given: Given) -> None:
        """Discard the letters."""
        why, who = read_why(given), self.actor
        try:
            done = await self.site.act(lambda queue: discard(queue, found.wanted, why, who))
        except NotYet:
            self.reply({"discarded": None, "text": "The discard has started and continues."}, 202)
        else:
            self.reply({"discarded": done})


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
            f"The filter matches {found.count:,} letters; repeat the request with their number: "
            f'"number": {found.count}.',
            number=found.count,
        )
    raise Refused(
        409,
        f"The filter matches {found.count:,} letters, not {number[:20]}. Nothing was changed.",
        number=found.count,
    )
