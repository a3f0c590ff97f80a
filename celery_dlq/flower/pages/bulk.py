"""Acts on many letters: a page that says how many and asks for their number, and the act itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from celery_dlq.errors import FilterError, OrdersError
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
from celery_dlq.flower.filters import Given, frozen, read_filter, to_pairs
from celery_dlq.flower.handler import Page
from celery_dlq.flower.pages.act import REPLAYED
from celery_dlq.flower.pages.letters import Row, rows_of
from celery_dlq.flower.problems import Refused
from celery_dlq.flower.request import asked, first, sent
from celery_dlq.store.base import Filter, Store
from celery_dlq.view import times

#: Letters that are shown as examples.
_EXAMPLES = 5

#: Fields of the form beside the filter.
_BESIDE = ("selected", "mark", "number", "why", "_xsrf", *ORDERS)

_GOES_ON = (
    "The discard has begun and takes longer than a page can wait. It goes on; the list of letters shows "
    "how far it is, and the audit what it was about."
)


@dataclass(frozen=True, kw_only=True)
class BulkView:
    """What the page shows before an act."""

    act: str
    reach: Reach
    examples: Sequence[Row]
    #: The filter as hidden fields.
    pairs: Sequence[tuple[str, str]]
    mark: str
    problem: str = ""
    given: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def value(self, name: str) -> str:
        """What a field holds."""
        return first(self.given, name)


class BulkAct(Page):
    """``/dead-letters/<act>?<filter>``: ``GET`` asks, ``POST`` does it."""

    act = ""

    async def get(self) -> None:
        """Show what it would be about."""
        if self.why_no_changes:
            raise Refused(403, self.why_no_changes)
        given = asked(self.request)
        if first(given, "selected") and not given.get("id"):
            raise FilterError("No letter is selected; tick some, or take all that match.")
        wanted = read_filter(given, times.utc_now(), beside=_BESIDE)
        # Letters that fail from now on would change the number that is agreed to.
        await self.ask(frozen(wanted, times.utc_now()))

    async def post(self) -> None:
        """Carry it out, when the number is that of the letters."""
        given = sent(self.request)
        if not self.site.forms.take(first(given, "mark"), self.act, self.actor):
            raise Refused(409, REPLAYED)
        wanted = read_filter(given, times.utc_now(), beside=_BESIDE)
        found = await self.site.ask(lambda store: reach(store, self.act, wanted))
        problem = why_not_agreed(found.count, first(given, "number"))
        if problem:
            await self.ask(wanted, problem, given, 409)
            return
        try:
            await self.carry_out(found, given)
        except (FilterError, OrdersError) as error:
            await self.ask(wanted, str(error), given, 400)

    async def ask(
        self, wanted: Filter, problem: str = "", given: Given | None = None, status: int = 200
    ) -> None:
        """Show the form."""
        found, examples = await self.site.ask(lambda store: _look(store, self.act, wanted))
        view = BulkView(
            act=self.act,
            reach=found,
            examples=examples,
            pairs=list(to_pairs(wanted)),
            mark=self.site.forms.mark(self.act, self.actor),
            problem=problem,
            given=given or {},
        )
        self.page("bulk", view, status)

    async def carry_out(self, found: Reach, given: Given) -> None:
        """Do it, and answer."""
        raise NotImplementedError


class RedriveMany(BulkAct):
    """Make an operation."""

    act = "redrive"

    async def carry_out(self, found: Reach, given: Given) -> None:
        """Leave it to a worker, and show it."""
        orders, who = read_orders(given), self.actor
        made = await self.site.act(lambda queue: leave_redrive(queue, found, orders, who))
        self.see(self.links.operation(made.id))


class DiscardMany(BulkAct):
    """Close letters."""

    act = "discard"

    async def carry_out(self, found: Reach, given: Given) -> None:
        """Close them, and show those that are left."""
        why, who = read_why(given), self.actor
        try:
            done = await self.site.act(lambda queue: discard(queue, found.wanted, why, who))
        except NotYet:
            raise Refused(202, _GOES_ON) from None
        self.see(self.links.letters(discarded=str(done)))


def why_not_agreed(count: int, number: str) -> str:
    """Why an act on ``count`` letters is not carried out; empty when ``number`` is theirs. One letter
    needs none."""
    if not count:
        return "No letter is left that this could be done with."
    typed = number.strip().replace(",", "").replace(" ", "")
    if typed == str(count) or (count == 1 and not typed):
        return ""
    if not typed:
        return f"Type the number of the letters, {count:,}, to say that you mean them."
    return f"These are {count:,} letters now, and you typed {number[:20]}. Nothing was changed."


def _look(store: Store, act: str, wanted: Filter) -> tuple[Reach, Sequence[Row]]:
    found = reach(store, act, wanted)
    page = store.find(found.wanted, limit=_EXAMPLES)
    return found, rows_of(page.letters)
