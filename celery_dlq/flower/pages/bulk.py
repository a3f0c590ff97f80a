"""Acts on many letters: a page that asks to confirm their number, and the act itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
from celery_dlq.flower.filters import Given, frozen, read_filter, to_pairs
from celery_dlq.flower.http.calls import NotYet
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.problems import Refused
from celery_dlq.flower.http.request import asked, first, sent
from celery_dlq.flower.pages.letters import Row, rows_of
from celery_dlq.store.base import Filter
from celery_dlq.view import times

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Examples on the page.
_EXAMPLES = 5

#: Fields of the form in addition to the filter.
_OTHERS = ("selected", "mark", "number", "_xsrf", *ORDERS)

_GOES_ON = (
    "The discard has started, but takes longer than a page can wait. It continues; the list of letters shows "
    "its progress, and the audit records it."
)


@dataclass(frozen=True, kw_only=True)
class BulkView:
    """The values of the page before an act."""

    act: str
    reach: Reach
    examples: Sequence[Row]
    #: The filter as hidden fields.
    pairs: Sequence[tuple[str, str]]
    mark: str
    problem: str = ""
    given: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def value(self, name: str) -> str:
        """The value of a field."""
        return first(self.given, name)


class BulkAct(Page):
    """``/dead-letters/<act>?<filter>``: ``GET`` asks for confirmation, ``POST`` runs the act."""

    async def get(self) -> None:
        """Show the letters that the act would take."""
        if self.why_no_changes:
            raise Refused(403, self.why_no_changes)
        given = asked(self.request)
        if first(given, "selected") and not given.get("id"):
            raise FilterError("No letter is selected; select some, or act on all that match.")
        wanted = read_filter(given, times.utc_now(), others=_OTHERS)
        # Letters that fail from now on must not change the number to confirm.
        await self.ask(await self.site.ask(lambda store: frozen(store, wanted)))

    async def post(self) -> None:
        """Run the act, if the number is correct."""
        given = sent(self.request)
        self.take_mark(given, self.act)
        wanted = read_filter(given, times.utc_now(), others=_OTHERS)
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
            mark=self.mark(self.act),
            problem=problem,
            given=given or {},
        )
        self.page("bulk", view, status)

    async def carry_out(self, found: Reach, given: Given) -> None:
        """Make the change, and answer."""
        raise NotImplementedError


class RedriveMany(BulkAct):
    """Redrive many letters."""

    act = "redrive"

    async def carry_out(self, found: Reach, given: Given) -> None:
        """Create an operation for a worker, and redirect to its page."""
        orders, who = read_orders(given), self.actor
        made = await self.site.act(lambda queue: leave_redrive(queue, found, orders, who))
        self.see(self.links.operation(made.id))


class DiscardMany(BulkAct):
    """Discard many letters."""

    act = "discard"

    async def carry_out(self, found: Reach, given: Given) -> None:
        """Discard them, and redirect to the list."""
        why, who = read_why(given), self.actor
        try:
            done = await self.site.act(lambda queue: discard(queue, found.wanted, why, who))
        except NotYet:
            raise Refused(202, _GOES_ON) from None
        self.see(self.links.letters(discarded=str(done)))


def why_not_agreed(count: int, number: str) -> str:
    """The error if ``number`` does not confirm an act on ``count`` letters; empty if it does. One letter
    needs no confirmation."""
    if not count:
        return "No matching letter is left."
    typed = number.strip().replace(",", "").replace(" ", "")
    if typed == str(count) or (count == 1 and not typed):
        return ""
    if not typed:
        return f"Type the number of letters, {count:,}, to confirm."
    return f"The number is {count:,} now, and you typed {number[:20]}. Nothing was changed."


def _look(store: Store, act: str, wanted: Filter) -> tuple[Reach, Sequence[Row]]:
    found = reach(store, act, wanted)
    page = store.letters.find(found.wanted, limit=_EXAMPLES)
    return found, rows_of(page.letters)
