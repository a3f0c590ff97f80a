"""One letter: why it died, attempts, contents, history and buttons."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any

from celery_dlq.base.redact import clip
from celery_dlq.errors import FilterError, UnknownLetter
from celery_dlq.flower import words
from celery_dlq.flower.http.handler import Handler
from celery_dlq.flower.http.request import Given, first_value
from celery_dlq.flower.http.site import Site
from celery_dlq.flower.resources import letter_acts as acts
from celery_dlq.model.automation import actor_of
from celery_dlq.model.group import Group, GroupStatus
from celery_dlq.model.handling import VERDICTS, Handling
from celery_dlq.model.operation import ENDED, Sending, SendingState
from celery_dlq.model.states import DELETABLE_STATES, State
from celery_dlq.model.terms import leaves
from celery_dlq.store.base import AuditRow, Change, Operation
from celery_dlq.view import automations as facts
from celery_dlq.view import lookup, times
from celery_dlq.view.acts import sentence
from celery_dlq.view.letters import MESSAGE, ORIGIN, ROUTE, WholeLetter, page_of_trace, said_of
from celery_dlq.view.operations import why_text

if TYPE_CHECKING:
    from celery_dlq.api.queue import DeadLetterQueue
    from celery_dlq.store import Store

#: The acts after which the page follows a redrive.
_REDRIVEN = ("redriven", "edited-redriven")

#: What is said after each act, by its name in the address of the page.
_DONE = {
    "edited": "The message was changed. Redrive it to send it.",
    "discarded": "The letter was discarded.",
    "undiscarded": "The letter was reopened.",
    "unparked": "A worker will send it within seconds.",
    "redriven": "A worker will send the letter within seconds.",
    "edited-redriven": "The message was changed. A worker will send it within seconds.",
}

#: What is said about a letter that was redriven on its page, by the state of its sending.
_SENT = {
    SendingState.SUCCEEDED: "It was redriven, and succeeded.",
    SendingState.FAILED: "It was redriven, and failed again.",
    SendingState.SKIPPED: "It was not sent.",
}

#: The acts with a form on the page, by the state of the letter.
_ALLOWED: Mapping[State, Sequence[str]] = {
    State.DEAD: ("redrive", "discard"),
    State.REDRIVEN: ("redrive", "discard"),
    State.DISCARDED: ("undiscard",),
    State.PARKED: ("unpark", "discard"),
}

#: The names of these acts.
ACTS = ("redrive", "discard", "undiscard", "unpark")

#: Acts of operators that are shown, the latest ones.
_ACTS_SHOWN = 50

#: Characters of an id that a command repeats.
_ID_SHOWN = 300

#: Values of the arguments that link to the letters that have them, too.
_VALUES_SHOWN = 12

_LATER = datetime.max.replace(tzinfo=timezone.utc)


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened to a letter or to a group."""

    at: datetime | None
    #: The end of its CSS class.
    kind: str = "decision"
    #: The subject of :attr:`title`; empty if it has none.
    who: str = ""
    title: str
    #: The text of a note.
    text: str = ""
    why: str = ""
    #: A change of the message, as a diff.
    diff: str = ""
    state: str = ""
    operation: str = ""
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class LetterView(WholeLetter):
    """A letter with what the store knows of it, and the values of its page."""

    #: Who began the operation of each redrive; an operation may have been removed.
    redriven_by: Mapping[str, str]
    group: Group | None
    #: Acts of operators, newest first.
    audit: Sequence[AuditRow]
    #: The operation that a redrive on its page has created.
    operation: Operation | None
    site: Site

    def after(self, act: str, operation: str) -> tuple[str, bool]:
        """What is said after ``act`` on its page, and whether the page refreshes itself: the letter is to run
        now, or its redrive has no outcome."""
        state = self.letter.state
        is_live = state in (State.CLAIMED, State.REDRIVEN)
        if act not in _REDRIVEN:
            return _DONE.get(act, ""), is_live or (act == "unparked" and state is State.PARKED)
        sending = next((one for one in self.redrives if one.operation == operation), None)
        if sending is not None:
            return _SENT.get(sending.state, "It was sent. Its outcome will appear here."), is_live
        if self.operation is not None and self.operation.state in ENDED:
            return "It was not sent: the redrive has ended.", is_live
        return _DONE[act], is_live or state is State.DEAD

    @property
    def acts(self) -> list[str]:
        """The acts that its state allows."""
        state = self.letter.state
        edit = ["edit"] if state is State.DEAD else []
        delete = ["delete"] if state in DELETABLE_STATES else []
        return [*_ALLOWED.get(state, ()), *edit, *delete]

    @property
    def often(self) -> bool:
        """Whether a redrive needs ``again``, because of its redrive limit."""
        return acts.has_been_redriven_often(self.letter)

    @property
    def values(self) -> list[str]:
        """The first values of its arguments, if they are kept for searches."""
        shown = min(self.site.settings.search_values, _VALUES_SHOWN)
        found = islice(leaves(self.letter.args, self.letter.kwargs), shown)
        # An address cannot have some of the other characters.
        return list(dict.fromkeys(text for _, text in found if text.isprintable()))

    @property
    def message(self) -> list[facts.Fact]:
        """The facts about the message: origin, canvas, worker, route."""
        return facts.given(self.facts(MESSAGE, ORIGIN, ROUTE))

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
        for row in self.audit:
            is_verdict = (
                row.who in handlers and row.act in VERDICTS and not row.detail.get("operation")
            )
            if row.act != "edit" and not is_verdict:
                found.append(of_act(row))
        letter = self.letter
        if letter.closed_at and letter.closed_at not in {row.at for row in self.audit}:
            # It succeeded, or was closed by an act on many letters.
            closed = _in_state(
                letter.state, at=letter.closed_at, title=letter.state.value, who=letter.closed_by,
                why=letter.closed_reason,
            )  # fmt: skip
            found.append(closed)
        return sorted(found, key=lambda event: event.at or _LATER)


def of_act(row: AuditRow) -> Event:
    """An act of an operator."""
    operation, is_note = str(row.detail.get("operation") or ""), row.act == "note"
    return Event(
        at=row.at, kind="note" if is_note else "redrive" if operation else "decision",
        who=row.who, title=sentence(row, words.moment), why=row.why, operation=operation,
        text=str(row.detail.get("note", "")) if is_note else "",
    )  # fmt: skip


def _of_change(change: Change) -> Event:
    by = "" if change.how == "edit" else f" by {change.how}"
    return Event(at=change.at, title=f"changed the message{by}", who=change.who, diff=change.diff)


def _of_handling(handling: Handling) -> Event:
    """A handling. A change that it made is an entry of its own."""
    return _in_state(
        handling.state, at=handling.ended_at or handling.started_at or handling.queued_at,
        who=actor_of(handling.name), title=handling.verdict,
        why=said_of(handling.detail, handling.error), operation=handling.operation,
    )  # fmt: skip


def _of_sending(sending: Sending, who: str) -> Event:
    return _in_state(
        sending.state, at=sending.sent_at or sending.ended_at, who=who,
        title=f"redrove it (redrive {sending.redrive})", why=why_text(sending),
        diff=sending.change, operation=sending.operation,
    )  # fmt: skip


def _in_state(state: Enum, **values: Any) -> Event:
    kinds = {"failed": "failure", "succeeded": "success", "resolved": "success"}
    return Event(state=state.value, kind=kinds.get(state.value, "decision"), **values)


class OneLetter(Handler):
    """``/dead-letters/letters/<id>``, and the same in the REST API."""

    async def get(self, prefix: str) -> None:
        """One letter; in the REST API, as ``dlq show --format json`` has it. On a page, a prefix of its id
        redirects to the full id."""
        given = self.values()
        act, operation = first_value(given, "done"), first_value(given, "operation")
        view = await load_letter(self.site, prefix, operation)
        letter = view.letter
        if self.is_api:
            self.reply(view.record())
        elif letter.task_id != prefix:
            self.redirect(self.links.letter(letter.task_id))
        else:
            done, is_live = view.after(act, operation)
            self.page("letter", view, done=done, is_live=is_live, operation=operation, problem="")


class LetterAct(Handler):
    """``POST /dead-letters/letters/<id>/<act>``"""

    def get(self, task_id: str) -> None:
        """Lead to the letter, for a reload of a form that was not accepted."""
        self.redirect(self.links.letter(task_id))

    async def post(self, task_id: str) -> None:
        """Run the act, once per form."""
        # One form has the buttons of all acts.
        act, given, who = self.act, self.act_values(f"letter {task_id}"), self.actor
        try:
            done = await self.site.act(lambda queue: _carry_out(queue, act, task_id, given, who))
        except FilterError as error:
            view, problem = await load_letter(self.site, task_id), str(error)
            is_live = view.after("", "")[1]
            self.page("letter", view, 400, done="", is_live=is_live, operation="", problem=problem)
        else:
            self.see(f"{self.links.letter(task_id)}?{done}")


def _carry_out(queue: DeadLetterQueue, act: str, task_id: str, given: Given, who: str) -> str:
    """Make the change, in a thread; returns the query string for the letter's page.

    :raises OperationError: the state of the letter does not allow it.
    """
    if act == "redrive":
        return f"done=redriven&operation={acts.redrive_one(queue, task_id, given, who).id}"
    if act == "discard":
        number, said = (
            acts.discard(queue, acts.only(task_id, *acts.DISCARDABLE), given, who),
            "discarded",
        )
    elif act == "undiscard":
        wanted = acts.only(task_id, State.DISCARDED)
        number = queue.store.closing.undiscard(wanted, who=who, now=times.utc_now())
        said = "reopened"
    else:
        number, said = queue.unpark(acts.only(task_id, State.PARKED), who=who), "run now"
    acts.check_some(number, task_id, said)
    return f"done={act}ed"


class OfTask(Handler):
    """``/dead-letters/of-task/<id>``, for the script on Flower's pages. A task without a letter is not an
    error."""

    async def get(self, task_id: str) -> None:
        """The state of its letter; null without a letter."""
        letter = await self.site.ask(lambda store: store.letters.get(task_id))
        if letter is None:
            self.reply({"state": None})
        else:
            address = self.links.letter(letter.task_id)
            self.reply({"state": letter.state.value, "address": address})


async def load_letter(site: Site, prefix: str, operation_id: str = "") -> LetterView:
    """A letter, and what the store knows of it.

    :param operation_id: the redrive that was asked for on its page.
    :raises UnknownLetter: no id matches. If there is an archive, the error says how to look there.
    :raises AmbiguousId: several ids match.
    """
    try:
        return await site.ask(lambda store: _look_up(store, site, prefix, operation_id))
    except UnknownLetter as error:
        if site.settings.archive_url is None:
            raise
        command = f"celery -A <app> dlq archive show {shlex.quote(clip(prefix, _ID_SHOWN))}"
        raise type(error)(f"{error} It may be in the archive: `{command}` looks there.") from error


def _look_up(store: Store, site: Site, prefix: str, operation_id: str) -> LetterView:
    letter = lookup.letter_to_show(store, prefix)
    whole = WholeLetter.of(
        store, letter, route_owner=site.owner_of(letter.route),
        trace_page=page_of_trace(letter, site.settings.trace_url),
    )  # fmt: skip
    operations = map(store.operations.get, {one.operation for one in whole.redrives})
    return LetterView(
        **vars(whole),
        redriven_by={one.id: one.who for one in operations if one},
        group=store.groups.get(letter.fingerprint, now=times.utc_now()),
        audit=store.audit.find(letter=letter.task_id, limit=_ACTS_SHOWN).rows,
        operation=store.operations.get(operation_id) if operation_id else None,
        site=site,
    )
