"""Acts on many letters: a page that asks to confirm their number, and the act itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.api.retention import deletable
from celery_dlq.errors import FilterError, OrdersError, RepairError
from celery_dlq.flower.acts import (
    ORDERS,
    SET,
    Reach,
    discard,
    discardable,
    leave_redrive,
    reach,
    read_orders,
    read_repair,
    reason_in,
)
from celery_dlq.flower.filters import YES, Given, Take, choice, frozen, to_pairs
from celery_dlq.flower.http.calls import NotYet
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.problems import Refused
from celery_dlq.flower.http.request import asked, first, sent
from celery_dlq.flower.pages.letters.listing import Row, rows_of, values_lack_to
from celery_dlq.model.operation import Orders
from celery_dlq.model.states import CLOSED_STATES
from celery_dlq.redrive.orders import suggested_pacing
from celery_dlq.redrive.plan import Plan, failed_before, redrivable
from celery_dlq.store.base import Filter

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Examples on the page.
_EXAMPLES = 5

#: Reasons in a plan, and letters of each.
_REASONS, _SUCH = 10, 3

#: Asks for the plan of a redrive; and the mark of a form whose changes were shown.
_PLAN, _SEEN = "plan", "seen"

_UNSEEN = (
    "These changes were not checked yet, so nothing was sent. The plan shows them now; look at it, and send "
    "the form again."
)

#: Fields of the form in addition to the filter.
_OTHERS = ("selected", "mark", "number", "_xsrf", *ORDERS)

_GOES_ON = (
    "The {} has started, but takes longer than a page can wait. It continues; the list of letters shows its "
    "progress, and the audit records it."
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
    #: Whether the letters of a deletion are open.
    is_open: bool = False
    #: Letters that failed first then or earlier may lack the values that were asked for.
    values_lack_to: datetime | None = None
    #: Why a redrive may fail.
    warnings: Sequence[str] = ()
    #: What a redrive would do; None if that was not asked for.
    plan: Plan | None = None
    #: The mark of a form whose changes are shown in the plan; empty without changes.
    seen: str = ""

    def value(self, name: str) -> str:
        """The value of a field: what was given, or a suggestion."""
        is_sent = "mark" in self.given
        return first(self.given, name) or ("" if is_sent else self.suggested.get(name, ""))

    @property
    def number(self) -> int:
        """The number to confirm."""
        return _to_take(self.reach.count, self.given)

    @property
    def suggested(self) -> Mapping[str, str]:
        """A canary and a rate for a redrive of many letters, by the names of their fields."""
        return suggested_pacing(self.reach.count) if self.act == "redrive" else {}

    @property
    def numbers(self) -> Sequence[tuple[str, str]]:
        """The numbers of the plan, by their names."""
        plan = self.plan
        if plan is None:
            return []
        most, least = ("", "") if plan.is_exact else ("at most ", "at least ")
        found = [
            ("Would be sent", f"{most}{plan.sendable:,} of {self.reach.count:,}"),
            ("Cannot be sent", f"{least if plan.unsendable else ''}{plan.unsendable:,}"),
            ("May run twice", f"{plan.awaited:,}"),
        ]
        if self.seen:
            changed = f"{plan.changed:,} of {plan.tried:,} that were checked"
            found.append(("Would be changed", changed))
        return found

    @property
    def refusals(self) -> Sequence[tuple[str, Sequence[str]]]:
        """The reasons why letters of the plan cannot be sent, each with the ids of some of them."""
        found: dict[str, list[str]] = {}
        for one in self.plan.skipped if self.plan else ():
            found.setdefault(one.why_not or "", []).append(one.task_id)
        return [(why, ids[:_SUCH]) for why, ids in found.items()][:_REASONS]

    @property
    def open_instead(self) -> Sequence[tuple[str, str]]:
        """The query of the page that deletes the open letters that a deletion leaves alone; empty if there
        are none."""
        names_states = any(name == "state" for name, _ in self.pairs)
        if self.act != "delete" or self.is_open or names_states or not self.reach.left_alone:
            return []
        return [*self.pairs, ("open", YES)]


class BulkAct(Page):
    """``/dead-letters/<act>?<filter>``: ``GET`` asks for confirmation, ``POST`` runs the act."""

    #: The names that are allowed in addition to the filters.
    others: tuple[str, ...] = _OTHERS

    async def get(self) -> None:
        """Show the letters that the act would take."""
        if self.why_no_changes:
            raise Refused(403, self.why_no_changes)
        given = asked(self.request)
        if first(given, "selected") and not given.get("id"):
            raise FilterError("No letter is selected; select some, or act on all that match.")
        wanted = self.filter_in(given, others=self.others)
        take = self.take(wanted, given)
        # Letters that fail from now on must not change the number to confirm.
        until_now = await self.site.ask_primary(lambda store: frozen(store, wanted, take))
        await self.ask(until_now, given)

    async def post(self) -> None:
        """Run the act, if the number is correct."""
        given = sent(self.request)
        self.take_mark(given, self.act)
        wanted = self.filter_in(given, others=self.others)
        take = self.take(wanted, given)
        found = await self.site.ask_primary(lambda store: reach(store, wanted, take))
        number = _to_take(found.count, given)
        problem = self.why_not(wanted, given) or why_not_agreed(number, first(given, "number"))
        if problem:
            await self.ask(wanted, given, problem, 409)
            return
        try:
            await self.carry_out(found, given)
        except (FilterError, OrdersError, RepairError) as error:
            await self.ask(wanted, given, str(error), 400)

    async def ask(self, wanted: Filter, given: Given, problem: str = "", status: int = 200) -> None:
        """Show the form."""
        take = self.take(wanted, given)
        found, examples, lack_to, warnings = await self.site.ask_primary(
            lambda store: _look(store, wanted, take)
        )
        plan = None
        try:
            plan = await self.plan(found, given)
        except (OrdersError, RepairError) as error:
            problem, status = problem or str(error), 400
        view = BulkView(
            act=self.act,
            reach=found,
            examples=examples,
            pairs=list(to_pairs(wanted)),
            mark=self.mark(self.act),
            problem=problem,
            given=given,
            is_open=not found.wanted.states & CLOSED_STATES,
            values_lack_to=lack_to,
            warnings=warnings,
            plan=plan,
            seen=self.seen(wanted, given) if plan is not None and plan.tried else "",
        )
        self.page("bulk", view, status)

    async def plan(self, found: Reach, given: Given) -> Plan | None:
        """What the act would do with each letter, if it is known and was asked for."""
        return None

    def why_not(self, wanted: Filter, given: Given) -> str:
        """Why the form is not accepted yet; empty if it is."""
        return ""

    def seen(self, wanted: Filter, given: Given) -> str:
        """The mark of the changes that the page shows; empty without changes."""
        return ""

    def take(self, wanted: Filter, given: Given) -> Take:
        """How the act narrows a filter."""
        raise NotImplementedError

    async def carry_out(self, found: Reach, given: Given) -> None:
        """Make the change, and answer."""
        raise NotImplementedError


class RedriveMany(BulkAct):
    """Redrive many letters. Changes of their messages are only accepted after a page has shown them."""

    act = "redrive"
    others = (*_OTHERS, SET, _PLAN, _SEEN)

    async def post(self) -> None:
        """Show the plan, or create the operation."""
        given = sent(self.request)
        if first(given, _PLAN):
            # It changes nothing, so its form may be sent again.
            await self.ask(self.filter_in(given, others=self.others), given)
        else:
            await super().post()

    async def plan(self, found: Reach, given: Given) -> Plan | None:
        """The plan, if it was asked for or there are changes to show. It tries the first letters, which takes
        up to a second."""
        if not found.count or not (first(given, _PLAN) or _changes(given)):
            return None
        orders = _read(given)
        # A canary that does not fit must not hide the plan.
        orders = replace(orders, pacing=replace(orders.pacing, canary=0))
        return await self.site.calls.run(lambda: self.site.queue().plan(found.wanted, orders))

    def why_not(self, wanted: Filter, given: Given) -> str:
        """The error for changes that no page has shown."""
        if not _changes(given):
            return ""
        try:
            act = _act_with_changes(wanted, given)
        except RepairError as error:
            return str(error)
        return "" if self.site.forms.take(first(given, _SEEN), act, self.actor) else _UNSEEN

    def seen(self, wanted: Filter, given: Given) -> str:
        """The mark of the changes that the page shows; empty without changes."""
        return self.mark(_act_with_changes(wanted, given)) if _changes(given) else ""

    def take(self, _wanted: Filter, _given: Given) -> Take:
        """A redrive takes dead letters, and redriven ones by name."""
        return redrivable

    async def carry_out(self, found: Reach, given: Given) -> None:
        """Create an operation for a worker, and redirect to its page."""
        orders, who = _read(given), self.actor
        made = await self.site.act(lambda queue: leave_redrive(queue, found, orders, who))
        self.see(self.links.operation(made.id))


class EndMany(BulkAct):
    """Discard or delete many letters: this process does it, and no worker."""

    #: The act as a noun, and the name of its count in the address of the list.
    noun = done = ""

    async def carry_out(self, found: Reach, given: Given) -> None:
        """Run the act, and redirect to the list."""
        who = self.actor
        try:
            count = await self.site.act(lambda queue: self.end(queue, found.wanted, given, who))
        except NotYet:
            raise Refused(202, _GOES_ON.format(self.noun)) from None
        self.see(self.links.letters(**{self.done: str(count)}))

    def end(self, queue: DeadLetterQueue, wanted: Filter, given: Given, who: str) -> int:
        """Make the change, in a thread; returns the number of letters."""
        raise NotImplementedError


class DiscardMany(EndMany):
    """Discard many letters."""

    act = noun = "discard"
    done = "discarded"

    def take(self, _wanted: Filter, _given: Given) -> Take:
        """A discard takes dead letters, and redriven and parked ones by name."""
        return discardable

    def end(self, queue: DeadLetterQueue, wanted: Filter, given: Given, who: str) -> int:
        """Discard them."""
        return discard(queue, wanted, given, who)


class DeleteMany(EndMany):
    """Delete many letters for ever: closed ones, or open ones. ``open`` in the address asks about open
    letters; the form then has a checkbox, ``lose``, without which none of them is deleted."""

    act, noun, done = "delete", "deletion", "deleted"
    others = (*_OTHERS, "open", "lose")

    def take(self, wanted: Filter, given: Given) -> Take:
        """A deletion takes closed letters, unless ``open`` or the states ask for open ones."""
        names_open = bool(wanted.states) and not wanted.states & CLOSED_STATES
        return partial(deletable, is_open=choice(given, "open") or names_open)

    def end(self, queue: DeadLetterQueue, wanted: Filter, given: Given, who: str) -> int:
        """Delete them."""
        is_open = choice(given, "lose")
        return queue.delete(wanted, who=who, why=reason_in(given), is_open=is_open)


def _read(given: Given) -> Orders:
    return replace(read_orders(given), repair=read_repair(given))


def _to_take(count: int, given: Given) -> int:
    """How many of ``count`` letters the act takes, with the limit of a redrive."""
    limit = first(given, "limit").strip()
    return min(count, int(limit) or count) if limit.isdecimal() and len(limit) <= 18 else count


def _changes(given: Given) -> bool:
    return bool(first(given, SET).strip())


def _act_with_changes(wanted: Filter, given: Given) -> str:
    """The act that a mark is for: a redrive of just these letters with just these changes."""
    said = json.dumps([sorted(to_pairs(wanted)), read_repair(given).assignments])
    return f"redrive {hashlib.blake2b(said.encode(), digest_size=16).hexdigest()}"


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


def _look(
    store: Store, wanted: Filter, take: Take
) -> tuple[Reach, Sequence[Row], datetime | None, Sequence[str]]:
    """The letters of the act, some of them, ``values_lack_to``, and warnings."""
    found = reach(store, wanted, take)
    page = store.letters.find(found.wanted, limit=_EXAMPLES)
    failed = [*failed_before(store, found.wanted)] if take is redrivable else []
    return found, rows_of(page.letters), values_lack_to(store, wanted), failed
