"""One letter: why it died, its attempts, what it holds, what was done with it, and what can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from celery_dlq.flower.handler import Page
from celery_dlq.flower.lookup import whole_letter
from celery_dlq.flower.request import asked, first
from celery_dlq.flower.traceback import Piece, pieces
from celery_dlq.flower.words import lines
from celery_dlq.group import Group, GroupStatus
from celery_dlq.letter import Attempt, DeadLetter
from celery_dlq.operation import DEFAULT_ORDERS, Sending
from celery_dlq.redact import REDACTED
from celery_dlq.redrive.canvas import errbacks_of
from celery_dlq.states import State
from celery_dlq.store.base import AuditRow, Change, Store
from celery_dlq.view import times
from celery_dlq.view.raw_body import has_unread_body, shown_body
from celery_dlq.view.reasons import MEANINGS, first_step

#: What was just done, and how the page says it.
_DONE = {
    "edited": "The message was changed. Redrive it to send it.",
    "discarded": "The letter was discarded.",
    "undiscarded": "The letter is open again.",
    "released": "A worker sends the retry within seconds.",
    "redriven": "The redrive is left to a worker, which sends it within seconds.",
}


#: Acts of people that are shown, the latest.
_ACTS_SHOWN = 50

_LATER = datetime.max.replace(tzinfo=timezone.utc)


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that was done with the letter."""

    at: datetime | None
    title: str
    who: str = ""
    why: str = ""
    #: What was changed in the message, as lines of a diff.
    diff: str = ""
    state: str = ""
    operation: str = ""


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the store knows of a letter."""

    letter: DeadLetter
    redrives: Sequence[Sending]
    changes: Sequence[Change]
    group: Group | None
    #: What people did with it, newest first.
    audit: Sequence[AuditRow]


@dataclass(frozen=True, kw_only=True)
class LetterView:
    """What the page shows."""

    known: Known
    #: Whether Flower knows the task, too.
    in_flower: bool
    #: The mark of the forms.
    marks: dict[str, str]
    done: str = ""
    operation: str = ""

    @property
    def letter(self) -> DeadLetter:
        """The letter."""
        return self.known.letter

    @property
    def meaning(self) -> str:
        """What its reason means."""
        return MEANINGS[self.letter.reason]

    @property
    def acts(self) -> frozenset[str]:
        """What can be done in its state."""
        return _ACTS[self.letter.state]

    @property
    def next_step(self) -> str:
        """What is to be done, where something comes before a redrive."""
        first = first_step(self.letter.reason)
        return f"{first[:1].upper()}{first[1:]}redrive" if first else ""

    @property
    def often(self) -> bool:
        """Whether a redrive has to be told to send it once more."""
        limit = DEFAULT_ORDERS.checking.max_redrives
        return limit is not None and self.letter.redrive_count >= limit

    @property
    def attempts(self) -> Sequence[Attempt]:
        """Its failed runs, oldest first."""
        return self.letter.attempts

    @property
    def body(self) -> str | None:
        """The body, where nobody could read arguments in it."""
        return shown_body(self.letter.envelope.body) if has_unread_body(self.letter) else None

    @property
    def message(self) -> list[tuple[str, Any]]:
        """Where the message came from, and what it is part of."""
        letter, envelope = self.letter, self.letter.envelope
        found = [
            ("Queue", letter.queue),
            ("Exchange", envelope.exchange),
            ("Routing key", envelope.routing_key),
            ("Content", f"{len(envelope.body):,} bytes of {envelope.content_type}"),
            ("Part of", letter.canvas),
            ("Ran when it died", ", ".join(errbacks_of(envelope))),
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
    def headers(self) -> dict[str, Any]:
        """The message's headers. Celery writes the arguments into two of them, which nothing redacts."""
        copies = {"argsrepr": REDACTED, "kwargsrepr": REDACTED}
        return {
            name: copies.get(name, value) if value else value
            for name, value in self.letter.envelope.headers.items()
        }

    @property
    def traceback(self) -> list[Piece]:
        """The traceback in pieces."""
        return pieces(lines(self.letter.traceback, 65_536)) if self.letter.traceback else []

    @property
    def triage(self) -> list[tuple[str, str]]:
        """What people have said of its group."""
        group = self.known.group
        if group is None:
            return []
        decided = "" if group.status is GroupStatus.OPEN else group.status.value
        by = f"{decided} by {group.status_by}" if decided and group.status_by else decided
        found = [("Group is", by), ("Owner", group.owner), ("Note", group.note)]
        return [(name, text) for name, text in found if text]

    @property
    def history(self) -> list[Event]:
        """What was done with it, oldest first."""
        known = self.known
        found = [*map(_of_change, known.changes), *map(_of_sending, known.redrives)]
        # Of an edit there is more than the audit says.
        acts = [row for row in known.audit if row.act != "edit"]
        found += map(_of_act, acts)
        letter = self.letter
        if letter.closed_at and letter.closed_at not in {row.at for row in acts}:
            # It ran successfully, or was closed among others.
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

    async def get(self, beginning: str) -> None:
        """Show the letter; a beginning of its id leads to the whole."""
        known = await self.site.ask(lambda store: look_up(store, beginning))
        letter = known.letter
        if letter.task_id != beginning:
            self.redirect(self.links.letter(letter.task_id))
            return
        given = asked(self.request)
        acts = _ACTS[letter.state] - {"edit"}
        view = LetterView(
            known=known,
            in_flower=self.site.flower_knows(letter.task_id),
            marks={
                act: self.site.forms.mark(f"{act} {letter.task_id}", self.actor) for act in acts
            },
            done=_DONE.get(first(given, "done"), ""),
            operation=first(given, "operation"),
        )
        self.page("letter", view)


def look_up(store: Store, beginning: str) -> Known:
    """All that the store knows of a letter.

    :raises UnknownLetter: there is none that begins like this.
    :raises AmbiguousId: there are several.
    """
    letter = whole_letter(store, beginning)
    return Known(
        letter=letter,
        redrives=store.sendings_of(letter.task_id),
        changes=store.changes_of(letter.task_id),
        group=store.group(letter.fingerprint, now=times.utc_now()),
        audit=store.audit(letter=letter.task_id, limit=_ACTS_SHOWN).rows,
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
