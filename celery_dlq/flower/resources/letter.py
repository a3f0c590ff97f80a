"""One letter: why it died, attempts, contents, history and buttons."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import islice
from typing import TYPE_CHECKING, Any

from celery_dlq.base.redact import clip
from celery_dlq.errors import FilterError, UnknownLetter
from celery_dlq.flower.http.handler import Api, Page
from celery_dlq.flower.http.request import Given, asked, first, to_pairs
from celery_dlq.flower.http.site import Site
from celery_dlq.flower.resources.letter_acts import (
    DISCARDABLE,
    check_some,
    discard,
    has_been_redriven_often,
    only,
    redrive_one,
)
from celery_dlq.flower.words import lines, moment
from celery_dlq.model.automation import actor_of
from celery_dlq.model.group import Group, GroupStatus
from celery_dlq.model.handling import VERDICTS, Handling
from celery_dlq.model.letter import Attempt
from celery_dlq.model.operation import ENDED, Sending, SendingState
from celery_dlq.model.states import DELETABLE_STATES, State
from celery_dlq.model.terms import leaves
from celery_dlq.store.base import AuditRow, Change, Filter, Operation
from celery_dlq.view import automations as facts
from celery_dlq.view import lookup, times
from celery_dlq.view.acts import sentence
from celery_dlq.view.letters import (
    MESSAGE,
    ORIGIN,
    ROUTE,
    WholeLetter,
    attempts_in_order,
    first_step,
    has_unread_body,
    named_arguments,
    page_of_trace,
    said_of,
    shown_body,
)
from celery_dlq.view.operations import why_text
from celery_dlq.view.traceback import Piece, pieces

if TYPE_CHECKING:
    from celery_dlq.api.queue import DeadLetterQueue
    from celery_dlq.store import Store

#: The message after each act.
_DONE = {
    "edited": "The message was changed. Redrive it to send it.",
    "discarded": "The letter was discarded.",
    "undiscarded": "The letter was reopened.",
    "unparked": "A worker will send the retry within seconds.",
    "redriven": "A worker will send the letter within seconds.",
    "edited-redriven": "The message was changed. A worker will send it within seconds.",
}

#: Acts on one letter: as the address of its page has them when they are done, and in words.
_ACTS_DONE = {
    "discard": ("discarded", "discarded"),
    "undiscard": ("undiscarded", "reopened"),
    "unpark": ("unparked", "run now"),
}


#: The acts after which the page follows a redrive.
_REDRIVEN = ("redriven", "edited-redriven")

#: Acts of operators that are shown, the latest ones.
_ACTS_SHOWN = 50

#: Characters of an id that a command repeats.
_ID_SHOWN = 300

#: Values of the arguments that link to the letters that have them, too.
_VALUES_SHOWN = 12

_LATER = datetime.max.replace(tzinfo=timezone.utc)


@dataclass(frozen=True, kw_only=True)
class Event:
    """An entry in the letter's history."""

    at: datetime | None
    title: str
    #: The subject of :attr:`title`; empty if it has none.
    who: str = ""
    why: str = ""
    #: A change of the message, as a diff.
    diff: str = ""
    state: str = ""
    operation: str = ""


@dataclass(frozen=True, kw_only=True)
class LetterView(WholeLetter):
    """A letter with what the store knows of it, and the values of its page."""

    #: Who began the operation of each redrive; an operation may have been removed.
    redriven_by: Mapping[str, str]
    group: Group | None
    #: Acts of operators, newest first.
    audit: Sequence[AuditRow]
    #: The redrive that was asked for on its page.
    asked: Operation | None

    #: Whether Flower has a page of the task.
    in_flower: bool = False
    #: The act that was just done on it, as in the address, and the operation that it created.
    act: str = ""
    operation: str = ""
    #: The automatic redrive that holds it, if the settings still have it.
    holder: str = ""
    held_title: str = facts.HELD
    #: How many values of its arguments are kept for searches.
    values_kept: int = 0
    #: The names of the task's positional parameters; empty if they are unknown.
    parameters: Sequence[str] = ()
    #: Why a form was not accepted.
    problem: str = ""

    @property
    def attempts(self) -> Sequence[tuple[int, Attempt]]:
        """Its attempts, with their numbers over all redrives."""
        return attempts_in_order(self.letter)

    @property
    def is_live(self) -> bool:
        """Whether the page refreshes itself: the letter is to run now, or its redrive has no outcome."""
        return (self.act == "unparked" and self.letter.state is State.PARKED) or self._awaits

    @property
    def _awaits(self) -> bool:
        if self.letter.state in (State.CLAIMED, State.REDRIVEN):
            return True
        is_asked = self.act in _REDRIVEN and self._sending is None
        return is_asked and self.letter.state is State.DEAD and not self._was_ended

    @property
    def _was_ended(self) -> bool:
        """Whether the redrive ended without the letter."""
        return self.asked is not None and self.asked.state in ENDED

    @property
    def _sending(self) -> Sending | None:
        """The redrive that was asked for on this page; None before a worker has begun it."""
        return next((one for one in self.redrives if one.operation == self.operation), None)

    @property
    def done(self) -> str:
        """The result of the act."""
        sending = self._sending
        if self.act in _REDRIVEN and sending is None and self._was_ended:
            return "It was not sent: the redrive has ended."
        if self.act not in _REDRIVEN or sending is None:
            return _DONE.get(self.act, "")
        said = {SendingState.SUCCEEDED: "It was redriven, and succeeded.",
                SendingState.FAILED: "It was redriven, and failed again.",
                SendingState.SKIPPED: "It was not sent."}  # fmt: skip
        return said.get(sending.state, "It was sent. Its outcome will appear here.")

    @property
    def acts(self) -> list[str]:
        """The acts that its state allows."""
        state = self.letter.state
        edit = ["edit"] if state is State.DEAD else []
        delete = ["delete"] if state in DELETABLE_STATES else []
        return [*_ACTS.get(state, ()), *edit, *delete]

    @property
    def itself(self) -> Sequence[tuple[str, str]]:
        """The query of the page that deletes it."""
        return list(
            to_pairs(Filter(ids=(self.letter.task_id,), states=frozenset({self.letter.state})))
        )

    @property
    def is_in_canvas(self) -> bool:
        """Whether other tasks were sent together with this one, or it was sent by another one."""
        others = self.letter.root_id != self.letter.task_id or self.letter.canvas
        return bool(self.letter.root_id and others)

    @property
    def next_step(self) -> str:
        """The steps up to a redrive; empty if a redrive is the first."""
        first = first_step(self.letter.reason)
        return f"{first[:1].upper()}{first[1:]}redrive" if first else ""

    @property
    def often(self) -> bool:
        """Whether a redrive needs ``again``, because of its redrive limit."""
        return has_been_redriven_often(self.letter)

    @property
    def body(self) -> str | None:
        """The body, if its arguments could not be read."""
        return shown_body(self.letter.envelope.body) if has_unread_body(self.letter) else None

    @property
    def arguments(self) -> list[tuple[str, Any]]:
        """Its arguments, by the names of the task's parameters."""
        return named_arguments(self.letter, self.parameters)

    @property
    def values(self) -> list[str]:
        """The first values of its arguments, if they are kept for searches."""
        shown = min(self.values_kept, _VALUES_SHOWN)
        found = islice(leaves(self.letter.args, self.letter.kwargs), shown)
        # An address cannot have some of the other characters.
        return list(dict.fromkeys(text for _, text in found if text.isprintable()))

    @property
    def message(self) -> list[facts.Fact]:
        """The facts about the message: origin, canvas, worker."""
        return facts.given(self.facts(MESSAGE, ORIGIN, ROUTE))

    @property
    def traceback(self) -> list[Piece]:
        """The pieces of the traceback."""
        return pieces(lines(self.letter.traceback, 65_536)) if self.letter.traceback else []

    @property
    def held(self) -> list[facts.Fact]:
        """Which automatic redrive holds it, and why; empty if none does."""
        return [] if self.hold is None else facts.holding(self.hold)

    @property
    def triage(self) -> list[facts.Fact]:
        """The decisions about its group."""
        group = self.group
        if group is None:
            return []
        decided = "" if group.status is GroupStatus.OPEN else group.status.value
        by = f"{decided} by {group.status_by}" if decided and group.status_by else decided
        return facts.given([("Group status", by), ("Owner", group.owner), ("Note", group.note)])

    @property
    def history(self) -> list[Event]:
        """Its history, oldest entry first."""
        found, by = [*map(_of_change, self.changes)], self.redriven_by
        found += (_of_sending(one, by.get(one.operation, "")) for one in self.redrives)
        found += map(_of_handling, self.handlings)
        # The changes have the diff of an edit, and the handlings their verdicts; the audit row would repeat
        # them.
        handlers = {actor_of(one.name) for one in self.handlings}
        acts = [row for row in self.audit if row.act != "edit" and not _is_verdict(row, handlers)]
        found += map(_of_act, acts)
        letter = self.letter
        if letter.closed_at and letter.closed_at not in {row.at for row in self.audit}:
            # It succeeded, or was closed by an act on many letters.
            closed = Event(
                at=letter.closed_at, title=letter.state.value, who=letter.closed_by,
                why=letter.closed_reason, state=letter.state.value,
            )  # fmt: skip
            found.append(closed)
        return sorted(found, key=lambda event: event.at or _LATER)


#: The acts with a form on the page, by the state of the letter.
_ACTS: Mapping[State, Sequence[str]] = {
    State.DEAD: ("redrive", "discard"),
    State.REDRIVEN: ("redrive", "discard"),
    State.DISCARDED: ("undiscard",),
    State.PARKED: ("unpark", "discard"),
}


class LetterPage(Page):
    """``/dead-letters/letters/<id>``"""

    async def get(self, prefix: str) -> None:
        """Show the letter; a prefix of its id redirects to the full id."""
        given = asked(self.request)
        operation = first(given, "operation")
        seen = await seen_letter(self.site, prefix, operation)
        letter = seen.letter
        if letter.task_id != prefix:
            self.redirect(self.links.letter(letter.task_id))
            return
        view = replace(_shown(self.site, seen), act=first(given, "done"), operation=operation)
        self.page("letter", view)


def _shown(site: Site, seen: LetterView) -> LetterView:
    """``seen`` with what Flower knows of the letter."""
    letter, holder = seen.letter, "" if seen.hold is None else seen.hold.name
    return replace(
        seen,
        in_flower=site.flower_knows(letter.task_id),
        holder=holder if holder in {auto.name for auto in site.auto_redrives} else "",
        trace_page=page_of_trace(letter, site.trace_url),
        values_kept=site.search_values,
        parameters=site.parameters(letter.task),
    )


class LetterAct(Page):
    """``POST /dead-letters/letters/<id>/<act>``"""

    async def get(self, task_id: str) -> None:
        """Lead to the letter, for a reload of a form that was not accepted."""
        self.redirect(self.links.letter(task_id))

    async def post(self, task_id: str) -> None:
        """Run the act, once per form."""
        # One form has the buttons of all acts.
        act, given, who = self.act, self.sent_for(f"letter {task_id}"), self.actor
        try:
            done = await self.site.act(lambda queue: _carry_out(queue, act, task_id, given, who))
        except FilterError as error:
            seen = await seen_letter(self.site, task_id)
            self.page("letter", replace(_shown(self.site, seen), problem=str(error)), 400)
        else:
            self.see(f"{self.links.letter(task_id)}?{done}")


def _carry_out(queue: DeadLetterQueue, act: str, task_id: str, given: Given, who: str) -> str:
    """Make the change, in a thread; returns the query string for the letter's page.

    :raises OperationError: the state of the letter does not allow it.
    """
    if act == "redrive":
        return f"done=redriven&operation={redrive_one(queue, task_id, given, who).id}"
    if act == "discard":
        number = discard(queue, only(task_id, *DISCARDABLE), given, who)
    elif act == "undiscard":
        wanted = only(task_id, State.DISCARDED)
        number = queue.store.closing.undiscard(wanted, who=who, now=times.utc_now())
    else:
        number = queue.unpark(only(task_id, State.PARKED), who=who)
    done, said = _ACTS_DONE[act]
    check_some(number, task_id, said)
    return f"done={done}"


class OneLetter(Api):
    """``GET /api/dead-letters/letters/{id}``"""

    async def get(self, prefix: str) -> None:
        """One letter in full, as ``dlq show --format json`` has it."""
        seen = await seen_letter(self.site, prefix)
        self.reply(_shown(self.site, seen).record())


class OfTask(Page):
    """``/dead-letters/of-task/<id>``, for the script on Flower's pages. A task without a letter is not an
    error."""

    async def get(self, task_id: str) -> None:
        """The state of its letter; null without a letter."""
        letter = await self.site.ask(lambda store: store.letters.get(task_id))
        found: dict[str, str | None] = {"state": None}
        if letter is not None:
            found = {"state": letter.state.value, "address": self.links.letter(letter.task_id)}
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(json.dumps(found))


async def seen_letter(site: Site, prefix: str, operation_id: str = "") -> LetterView:
    """A letter, and what the store knows of it.

    :param operation_id: the redrive that was asked for on its page.
    :raises UnknownLetter: no id matches. If there is an archive, the error says how to look there.
    :raises AmbiguousId: several ids match.
    """
    try:
        seen = await site.ask(lambda store: _look_up(store, prefix, operation_id))
    except UnknownLetter as error:
        if not site.has_archive:
            raise
        command = f"celery -A <app> dlq archive show {shlex.quote(clip(prefix, _ID_SHOWN))}"
        raise type(error)(f"{error} It may be in the archive: `{command}` looks there.") from error
    return replace(seen, route_owner=site.owner_of(seen.letter.route))


def _look_up(store: Store, prefix: str, operation_id: str) -> LetterView:
    letter = lookup.letter_to_show(store, prefix)
    whole = WholeLetter.of(store, letter)
    operations = map(store.operations.get, {one.operation for one in whole.redrives})
    return LetterView(
        **vars(whole),
        redriven_by={one.id: one.who for one in operations if one},
        group=store.groups.get(letter.fingerprint, now=times.utc_now()),
        audit=store.audit.find(letter=letter.task_id, limit=_ACTS_SHOWN).rows,
        asked=store.operations.get(operation_id) if operation_id else None,
    )


def _of_change(change: Change) -> Event:
    by = "" if change.how == "edit" else f" by {change.how}"
    return Event(at=change.at, title=f"changed the message{by}", who=change.who, diff=change.diff)


def _of_handling(handling: Handling) -> Event:
    """A handling. A change that it made is an entry of its own."""
    return Event(
        at=handling.ended_at or handling.started_at or handling.queued_at,
        who=actor_of(handling.name),
        title=handling.verdict,
        why=said_of(handling.detail, handling.error),
        state=handling.state.value,
        operation=handling.operation,
    )


def _is_verdict(row: AuditRow, handlers: Collection[str]) -> bool:
    return row.who in handlers and row.act in VERDICTS and not row.detail.get("operation")


def _of_act(row: AuditRow) -> Event:
    operation = str(row.detail.get("operation") or "")
    said = sentence(row, moment)
    return Event(at=row.at, title=said, who=row.who, why=row.why, operation=operation)


def _of_sending(sending: Sending, who: str) -> Event:
    return Event(
        at=sending.sent_at or sending.ended_at,
        who=who,
        title=f"redrove it (redrive {sending.redrive})",
        why=why_text(sending),
        diff=sending.change,
        state=sending.state.value,
        operation=sending.operation,
    )
