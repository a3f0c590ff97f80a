"""The page of one letter: why it died, attempts, contents, history and buttons."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from celery_dlq.flower.html.traceback import Piece, pieces
from celery_dlq.flower.html.words import lines
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.request import asked, first
from celery_dlq.model.group import Group, GroupStatus
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.operation import DEFAULT_ORDERS, Sending
from celery_dlq.model.states import State
from celery_dlq.redrive.payload import linked_to
from celery_dlq.store.base import AuditRow, Change
from celery_dlq.view import lookup, times
from celery_dlq.view.raw_body import has_unread_body, shown_body
from celery_dlq.view.reasons import MEANINGS, first_step

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: The message after each act.
_DONE = {
    "edited": "The message was changed. Redrive it to send it.",
    "discarded": "The letter was discarded.",
    "undiscarded": "The letter was reopened.",
    "released": "A worker will send the retry within seconds.",
    "redriven": "A worker will send the letter within seconds.",
}


#: Acts of operators that are shown, the latest ones.
_ACTS_SHOWN = 50

_LATER = datetime.max.replace(tzinfo=timezone.utc)


@dataclass(frozen=True, kw_only=True)
class Event:
    """An entry in the letter's history."""

    at: datetime | None
    title: str
    who: str = ""
    why: str = ""
    #: A change of the message, as a diff.
    diff: str = ""
    state: str = ""
    operation: str = ""


@dataclass(frozen=True, kw_only=True)
class Known:
    """The store's data about a letter."""

    letter: DeadLetter
    redrives: Sequence[Sending]
    changes: Sequence[Change]
    group: Group | None
    #: Acts of operators, newest first.
    audit: Sequence[AuditRow]


@dataclass(frozen=True, kw_only=True)
class LetterView:
    """The values of the page."""

    known: Known
    #: Whether Flower has a page of the task.
    in_flower: bool
    #: The marks of the forms, by act.
    marks: dict[str, str]
    done: str = ""
    operation: str = ""

    @property
    def letter(self) -> DeadLetter:
        """The letter."""
        return self.known.letter

    @property
    def meaning(self) -> str:
        """The meaning of its reason."""
        return MEANINGS[self.letter.reason]

    @property
    def acts(self) -> frozenset[str]:
        """The acts that its state allows."""
        return _ACTS[self.letter.state]

    @property
    def next_step(self) -> str:
        """The steps up to a redrive; empty if a redrive is the first."""
        first = first_step(self.letter.reason)
        return f"{first[:1].upper()}{first[1:]}redrive" if first else ""

    @property
    def often(self) -> bool:
        """Whether a redrive needs ``again``, because of its redrive limit."""
        limit = DEFAULT_ORDERS.checking.max_redrives
        return limit is not None and self.letter.redrive_count >= limit

    @property
    def body(self) -> str | None:
        """The body, if its arguments could not be read."""
        return shown_body(self.letter.envelope.body) if has_unread_body(self.letter) else None

    @property
    def message(self) -> list[tuple[str, Any]]:
        """The facts about the message: origin, canvas, worker."""
        letter, envelope = self.letter, self.letter.envelope
        linked = linked_to(envelope)
        found = [
            ("Queue", letter.queue),
            ("Exchange", envelope.exchange),
            ("Routing key", envelope.routing_key),
            ("Content", f"{len(envelope.body):,} bytes of {envelope.content_type}"),
            ("Part of", letter.canvas),
            ("Unreadable", linked.unread),
            ("Ran when it died", ", ".join(linked.tasks)),
            ("Root", letter.root_id),
            ("Parent", letter.parent_id),
            ("Group of tasks", letter.group_id),
            ("Worker", letter.worker),
            ("Process", letter.pid),
            ("Release", letter.release),
            ("Tags", ", ".join(letter.tags)),
        ]
        return [(name, value) for name, value in found if value not in (None, "")]

    @property
    def traceback(self) -> list[Piece]:
        """The pieces of the traceback."""
        return pieces(lines(self.letter.traceback, 65_536)) if self.letter.traceback else []

    @property
    def triage(self) -> list[tuple[str, str]]:
        """The decisions about its group."""
        group = self.known.group
        if group is None:
            return []
        decided = "" if group.status is GroupStatus.OPEN else group.status.value
        by = f"{decided} by {group.status_by}" if decided and group.status_by else decided
        found = [("Group status", by), ("Owner", group.owner), ("Note", group.note)]
        return [(name, text) for name, text in found if text]

    @property
    def history(self) -> list[Event]:
        """Its history, oldest entry first."""
        known = self.known
        found = [*map(_of_change, known.changes), *map(_of_sending, known.redrives)]
        # The changes have the diff of an edit; the audit row would repeat it.
        acts = [row for row in known.audit if row.act != "edit"]
        found += map(_of_act, acts)
        letter = self.letter
        if letter.closed_at and letter.closed_at not in {row.at for row in acts}:
            # It succeeded, or was closed by an act on many letters.
            closed = Event(
                at=letter.closed_at, title=letter.state.value, who=letter.closed_by,
                why=letter.closed_reason, state=letter.state.value,
            )  # fmt: skip
            found.append(closed)
        return sorted(found, key=lambda event: event.at or _LATER)


_ACTS = {
    State.DEAD: frozenset({"redrive", "edit", "discard"}),
    State.CLAIMED: frozenset[str](),
    State.REDRIVEN: frozenset({"redrive", "discard"}),
    State.RESOLVED: frozenset[str](),
    State.DISCARDED: frozenset({"undiscard"}),
    State.PARKED: frozenset({"release", "discard"}),
}


class LetterPage(Page):
    """``/dead-letters/letters/<id>``"""

    async def get(self, prefix: str) -> None:
        """Show the letter; a prefix of its id redirects to the full id."""
        known = await self.site.ask(lambda store: look_up(store, prefix))
        letter = known.letter
        if letter.task_id != prefix:
            self.redirect(self.links.letter(letter.task_id))
            return
        given = asked(self.request)
        acts = _ACTS[letter.state] - {"edit"}
        view = LetterView(
            known=known,
            in_flower=self.site.flower_knows(letter.task_id),
            marks={act: self.mark(f"{act} {letter.task_id}") for act in acts},
            done=_DONE.get(first(given, "done"), ""),
            operation=first(given, "operation"),
        )
        self.page("letter", view)


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


def look_up(store: Store, prefix: str) -> Known:
    """The store's data about a letter.

    :raises UnknownLetter: no id matches.
    :raises AmbiguousId: several ids match.
    """
    letter = lookup.letter(store, prefix)
    return Known(
        letter=letter,
        redrives=store.sendings.of_letter(letter.task_id),
        changes=store.edits.of_letter(letter.task_id),
        group=store.groups.get(letter.fingerprint, now=times.utc_now()),
        audit=store.audit.find(letter=letter.task_id, limit=_ACTS_SHOWN).rows,
    )


def _of_change(change: Change) -> Event:
    return Event(at=change.at, title=f"changed by {change.how}", who=change.who, diff=change.diff)


def _of_act(row: AuditRow) -> Event:
    operation = str(row.detail.get("operation") or "")
    return Event(at=row.at, title=row.act, who=row.who, why=row.why, operation=operation)


def _of_sending(sending: Sending) -> Event:
    return Event(
        at=sending.sent_at or sending.ended_at,
        title=f"redrive {sending.redrive}",
        why=sending.why,
        diff=sending.change,
        state=sending.state.value,
        operation=sending.operation,
    )
