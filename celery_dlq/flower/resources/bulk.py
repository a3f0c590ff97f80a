"""Acts on many letters: redrive, discard and delete. The page shows the letters and asks to confirm their
number; a request to the REST API gives the number, unless it names letters by id."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from celery_dlq.errors import FilterError, OpenLetters, OrdersError, RepairError
from celery_dlq.flower.http.calls import NotYet
from celery_dlq.flower.http.handler import Handler, Refused
from celery_dlq.flower.http.request import (
    YES,
    Given,
    Pairs,
    Take,
    choice,
    first_value,
    frozen,
    to_pairs,
)
from celery_dlq.flower.resources import letter_acts as acts
from celery_dlq.flower.resources.letter_acts import ACTS, Reach, reach
from celery_dlq.flower.resources.letters import values_lack_to
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import CLOSED_STATES
from celery_dlq.redrive.orders import suggested_pacing
from celery_dlq.redrive.plan import Plan, failed_before, redrivable
from celery_dlq.store.base import Filter, Operation
from celery_dlq.view import records
from celery_dlq.view.text import counted

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Examples on the page.
_EXAMPLES = 5

#: Reasons in a plan, and letters of each.
_REASONS, _SUCH = 10, 3

_UNSEEN = (
    "These changes were not checked yet, so nothing was sent. The plan shows them now; look at it, and send "
    "the form again."
)

#: Fields of every form in addition to the filter.
_FORM = ("selected", "mark", "number", "_xsrf", *acts.ORDERS)

_GOES_ON = (
    "The {} has started, but takes longer than a page can wait. It continues; the list of letters shows its "
    "progress, and the audit records it."
)


@dataclass(frozen=True, kw_only=True)
class BulkView:
    """The values of the page before an act."""

    act: str
    reach: Reach
    examples: Sequence[DeadLetter]
    #: The filter as hidden fields.
    pairs: Pairs
    given: Given
    #: Letters that failed first then or earlier may lack the values that were asked for.
    values_lack_to: datetime | None
    #: What a redrive would do; None if that was not asked for.
    plan: Plan | None

    @property
    def is_open(self) -> bool:
        """Whether the letters of a deletion are open."""
        return not self.reach.wanted.states & CLOSED_STATES

    def value(self, name: str) -> str:
        """The value of a field: what was given, or a suggestion."""
        is_sent = "mark" in self.given
        return first_value(self.given, name) or ("" if is_sent else self.suggested.get(name, ""))

    @property
    def number(self) -> int:
        """The number to confirm."""
        return _to_take(self.reach.count, self.given)

    @property
    def suggested(self) -> Mapping[str, str]:
        """A canary and a rate for a redrive of many letters, by the names of their fields."""
        return suggested_pacing(self.reach.count) if self.act == "redrive" else {}

    @property
    def shows_changes(self) -> bool:
        """Whether the plan shows the changes of the form."""
        return self.plan is not None and bool(self.plan.tried) and _changes(self.given)

    @property
    def numbers(self) -> Pairs:
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
        if self.shows_changes or plan.changed:
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
    def open_instead(self) -> Pairs:
        """The query of the page that deletes the open letters that a deletion leaves alone; empty if there
        are none."""
        names_states = any(name == "state" for name, _ in self.pairs)
        if self.act != "delete" or self.is_open or names_states or not self.reach.left_alone:
            return []
        return [*self.pairs, ("open", YES)]


class ManyLetters(Handler):
    """``/dead-letters/<act>?<filter>``: ``GET`` asks for confirmation, ``POST`` runs the act. In the REST
    API, ``POST`` with a JSON object: filters, and the fields of the act."""

    of_page = ("GET",)

    async def get(self) -> None:
        """Show the letters that the act would take."""
        self.check_act()
        given = self.values()
        if first_value(given, "selected") and not given.get("id"):
            raise FilterError("No letter is selected; select some, or act on all that match.")
        wanted = self._wanted(given)
        take = self._take(wanted, given)
        # Letters that fail from now on must not change the number to confirm.
        until_now = await self.site.ask(lambda store: frozen(store, wanted, take))
        await self._ask(until_now, given)

    async def post(self) -> None:
        """Run the act, if the number is correct and every change of messages was shown; or show the plan of a
        redrive.

        :raises Refused: in the REST API, the number is not that of the letters; or open letters would be
            deleted by mistake or without a reason.
        """
        given = self.values()
        if self.is_api:
            try:
                await self._run_at_once(given)
            except OpenLetters as error:
                raise Refused(400, f'{error} Add "open": true and a "why".') from None
            return
        wanted = self._wanted(given)
        if self.act == "redrive" and first_value(given, acts.PLAN):
            # It changes nothing, so its form may be sent again.
            await self._ask(wanted, given)
            return
        self.take_mark(given, self.act)
        take = self._take(wanted, given)
        found = await self.site.ask(lambda store: reach(store, wanted, take))
        number = _to_take(found.count, given)
        typed = first_value(given, "number")
        problem = self._why_unseen(wanted, given) or why_not_agreed(number, typed)
        if problem:
            await self._ask(wanted, given, problem, 409)
            return
        try:
            await self._carry_out(found, given, is_open=choice(given, "lose"))
        except (FilterError, OrdersError, RepairError) as error:
            await self._ask(wanted, given, str(error), 400)

    async def _run_at_once(self, given: Given) -> None:
        """Run the act of a JSON object."""
        act = ACTS[self.act]
        wanted = self.filter_in(given, others=("number", *act.fields))
        act.check(given)
        is_open = choice(given, "open")
        take = act.take(is_open)
        found = await self.site.ask(lambda store: reach(store, frozen(store, wanted, take), take))
        _check_number(found, first_value(given, "number"))
        await self._carry_out(found, given, is_open=is_open)

    async def _carry_out(self, found: Reach, given: Given, *, is_open: bool) -> None:
        act, who = ACTS[self.act], self.actor
        try:
            done = await self.site.act(lambda queue: act.run(queue, found, given, who, is_open))
        except NotYet:
            if not act.done:
                raise
            if not self.is_api:
                raise Refused(202, _GOES_ON.format(act.noun)) from None
            text = f"The {act.noun} has started and continues."
            self.reply({act.done: None, "text": text}, 202)
            return
        if isinstance(done, Operation) and self.is_api:
            self.set_header("Location", self.links.api("operations", done.id))
            self.reply(records.operation_record(done), 202)
        elif isinstance(done, Operation):
            self.see(self.links.operation(done.id))
        elif self.is_api:
            self.reply({act.done: done})
        else:
            self.see(self.links.letters(**{act.done: str(done)}))

    async def _ask(
        self, wanted: Filter, given: Given, problem: str = "", status: int = 200
    ) -> None:
        """Show the form."""
        take = self._take(wanted, given)

        def look(
            store: Store,
        ) -> tuple[Reach, Sequence[DeadLetter], datetime | None, Sequence[str]]:
            found = reach(store, wanted, take)
            page = store.letters.find(found.wanted, limit=_EXAMPLES)
            # Why a redrive may fail.
            failed = [*failed_before(store, found.wanted)] if take is redrivable else []
            return found, page.letters, values_lack_to(store, wanted), failed

        found, examples, lack_to, warnings = await self.site.ask(look)
        plan = None
        try:
            plan = await self._plan(found, given)
        except (OrdersError, RepairError) as error:
            problem, status = problem or str(error), 400
        view = BulkView(
            act=self.act,
            reach=found,
            examples=examples,
            pairs=[*to_pairs(wanted)],
            given=given,
            values_lack_to=lack_to,
            plan=plan,
        )
        repairs: Sequence[str] = ()
        if self.act == "redrive":
            repairs = await self.site.consult(lambda queue: tuple(queue.repairs))
        tasks = [*found.by_task]
        self.page(
            "bulk", view, status, problem=problem, warnings=warnings, repairs=repairs,
            seen=self.mark(_act_with_changes(wanted, given)) if view.shows_changes else "",
            parameters=self.site.parameters(tasks[0]) if len(tasks) == 1 else (),
        )  # fmt: skip

    async def _plan(self, found: Reach, given: Given) -> Plan | None:
        """The plan of a redrive, if it was asked for or there are changes to show. It tries the first
        letters, which takes up to a second."""
        if not found.count or not (first_value(given, acts.PLAN) or _changes(given)):
            return None
        orders = acts.orders_in(given)
        # A canary that does not fit must not hide the plan.
        orders = replace(orders, pacing=replace(orders.pacing, canary=0))
        return await self.site.consult(lambda queue: queue.redrives.plan(found.wanted, orders))

    def _why_unseen(self, wanted: Filter, given: Given) -> str:
        """The error for changes that no page has shown; empty without changes."""
        if not _changes(given):
            return ""
        try:
            act = _act_with_changes(wanted, given)
        except RepairError as error:
            return str(error)
        return (
            "" if self.site.forms.take(first_value(given, acts.SEEN), act, self.actor) else _UNSEEN
        )

    def _wanted(self, given: Given) -> Filter:
        return self.filter_in(given, others=(*_FORM, *ACTS[self.act].form))

    def _take(self, wanted: Filter, given: Given) -> Take:
        """How the act narrows a filter. A deletion takes closed letters, unless ``open`` or the states ask
        for open ones."""
        names_open = bool(wanted.states) and not wanted.states & CLOSED_STATES
        return ACTS[self.act].take(choice(given, "open") or names_open)


def _to_take(count: int, given: Given) -> int:
    """How many of ``count`` letters the act takes, with the limit of a redrive."""
    limit = first_value(given, "limit").strip()
    return min(count, int(limit) or count) if limit.isdecimal() and len(limit) <= 18 else count


def _changes(given: Given) -> bool:
    return bool(first_value(given, acts.SET).strip() or first_value(given, acts.REPAIR))


def _act_with_changes(wanted: Filter, given: Given) -> str:
    """The act that a mark is for: a redrive of just these letters with just these changes."""
    said = json.dumps([sorted(to_pairs(wanted)), acts.read_repair(given).given])
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


def _check_number(found: Reach, number: str) -> None:
    """Check that ``number`` is the number of letters that the act would take.

    :raises Refused: it is missing or different, or there are no letters.
    """
    count = found.count
    why = f"The filter matches {counted(count, 'letter')}"
    if not count:
        why = "No matching letter is left."
    elif number == str(count) or (found.wanted.ids and not number):
        return
    elif number:
        why += f", not {number[:20]}. Nothing was changed."
    else:
        why += f'; repeat the request with this number: "number": {count}.'
    raise Refused(409, why, number=count)
