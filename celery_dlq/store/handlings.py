"""Handlings: the acts of automations on letters.

For each letter of a handler, a message is sent. A worker starts the handling and ends it with a verdict,
which is carried out in the transaction that ends it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, or_, select, update
from sqlalchemy.engine import Connection

from celery_dlq.base.codec import dump_json
from celery_dlq.model.automation import actor_of
from celery_dlq.model.handling import (
    TRIES,
    Discard,
    Escalate,
    HandlerVerdict,
    Handling,
    HandlingState,
    Redrive,
    Ticket,
    name_of,
)
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import State
from celery_dlq.store.base import Edit, Lease, Operation, Rows, Scope
from celery_dlq.store.candidates import of_scope
from celery_dlq.store.coordination import is_held
from celery_dlq.store.database import clock
from celery_dlq.store.database.namespaces import is_ours
from celery_dlq.store.database.sealing import read_shown, sealing_of
from celery_dlq.store.database.tables import handling, letter
from celery_dlq.store.database.transactions import ListenedRole, Searched, reads, writes
from celery_dlq.store.groups.by_cause import write_ticket
from celery_dlq.store.letters.acts import discard_one
from celery_dlq.store.listener import StoreListener
from celery_dlq.store.redrive.history import has_message, lock_dead, save_edit
from celery_dlq.store.redrive.operations import create_operation
from celery_dlq.store.rows.query import Conditions, one_of, sums_by
from celery_dlq.store.rows.rows import Row, fit_text, read_row, stored_id

_QUEUED, _RUNNING = HandlingState.QUEUED.value, HandlingState.RUNNING.value
_DONE, _FAILED, _STALE = (
    HandlingState.DONE.value, HandlingState.FAILED.value, HandlingState.STALE.value,
)  # fmt: skip

#: The most times that the wait before a message is sent again is doubled.
_DOUBLINGS = 8

_LOST = "its worker was killed, or it did not end within its timeout"
_CHANGED = "the letter was changed, or failed again, before the handler's verdict came"
_REPLACED = "the handler has another version now"


class Handlings(ListenedRole[StoreListener]):
    """The part of :class:`~celery_dlq.store.automations.Automations` for one letter at a time."""

    @writes
    def take_due(
        self, lease: Lease, scope: Scope, *, limit: int, again_s: float
    ) -> Mapping[int, int]:
        """The handlings whose messages are to be sent now, the longest wait first: ids, and how often each
        message was sent without a start. The same handlings are due again after ``again_s`` seconds, which
        double each time: a message may be lost, or wait long in its queue."""
        if not is_held(self.connection, lease):
            return {}
        now = clock.now(self.connection)
        its = of_scope(scope), _is_due(_QUEUED, now)
        due = select(handling.c.id, handling.c.sends).where(*its, self.ours(handling))
        rows = self.connection.execute(due.order_by(handling.c.due_at).limit(limit)).all()
        for sends in {row.sends for row in rows}:
            ids = [row.id for row in rows if row.sends == sends]
            wait = timedelta(seconds=again_s * 2 ** min(sends, _DOUBLINGS))
            _set(self.connection, ids, sends=sends + 1, due_at=now + wait)
        return {row.id: row.sends for row in rows}

    @writes
    def put_off(self, ids: Sequence[int], *, delay_s: float) -> None:
        """The messages of ``ids`` were not sent; they are due again after ``delay_s`` seconds."""
        later = clock.now(self.connection) + timedelta(seconds=delay_s)
        waiting = update(handling).where(one_of(self.connection, handling.c.id, ids))
        self.connection.execute(waiting.where(handling.c.state == _QUEUED).values(due_at=later))

    @writes
    def expire(self, lease: Lease, scope: Scope) -> int:
        """Queue handlings again that their workers did not end in time, or give up on them; and end the
        handlings of other versions of the handler. Returns how many were given up."""
        if not is_held(self.connection, lease):
            return 0
        now = clock.now(self.connection)
        overdue = and_(self.ours(handling), of_scope(scope), _is_due(_RUNNING, now))
        failed = update(handling).where(overdue, handling.c.tries >= TRIES)
        lost = _ended(_FAILED, now, error=_LOST)
        given_up = self.connection.execute(failed.values(lost)).rowcount
        again = update(handling).where(overdue, handling.c.tries < TRIES)
        self.connection.execute(again.values(_again(now, now, _LOST)))
        others = and_(handling.c.name == scope.name, handling.c.version != scope.version)
        old = or_(_is_due(_QUEUED, now), _is_due(_RUNNING, now))
        stale = _ended(_STALE, now, error=_REPLACED)
        ours = update(handling).where(self.ours(handling), others, old)
        self.connection.execute(ours.values(stale))
        return given_up

    @reads
    def get(self, handling_id: int) -> Handling | None:
        """The handling with this id, or None."""
        stored = select(handling).where(handling.c.id == handling_id, self.ours(handling))
        return next(iter(_handlings(self.connection, stored)), None)

    @writes
    def start(self, handling_id: int, *, worker: str, within_s: float) -> Handling | None:
        """Begin a queued handling. Returns None if another copy of its message came first, or if its letter
        has changed; the change ends the handling.

        :param within_s: seconds after which the worker counts as dead.
        """
        row = _locked(self.connection, handling_id)
        if row is None or row["state"] != _QUEUED:
            return None
        now = clock.now(self.connection)
        if not _is_as_chosen(self.connection, row):
            _set(self.connection, [handling_id], **_ended(_STALE, now, error=_CHANGED))
            return None
        until = now + timedelta(seconds=within_s)
        begun = {
            "state": _RUNNING, "tries": row["tries"] + 1, "started_at": now, "due_at": until,
            "worker": fit_text(handling.c.worker, worker),
        }  # fmt: skip
        _set(self.connection, [handling_id], **begun)
        stored = select(handling).where(handling.c.id == handling_id)
        return _handlings(self.connection, stored)[0]

    @writes
    def end(
        self,
        started: Handling,
        seen: DeadLetter,
        verdict: HandlerVerdict,
        *,
        edit: Edit | None = None,
        detail: Mapping[str, Any],
    ) -> HandlingState | None:
        """Carry out the verdict of a started handling; audited. Returns the state in which the handling
        ended: ``STALE`` if the letter is not dead, has failed again, or has another message than ``seen``;
        None if another call of the handler has replaced this call. In both cases nothing else is changed,
        except that a ticket is noted, because the ticket is the group's.

        :param edit: the new message of a redrive.
        :param detail: the contents of the verdict, without secrets.
        """
        if not _is_running(self.connection, started):
            return None
        now = clock.now(self.connection)
        if isinstance(verdict, (Ticket, Escalate)):
            write_ticket(self.connection, started, verdict, now)
        elif not _changed_letter(
            self.connection, started, seen, verdict, edit, now, self._transactions.searched
        ):
            _set(self.connection, [started.id], **_ended(_STALE, now, error=_CHANGED))
            return HandlingState.STALE
        done = _ended(_DONE, now)
        if isinstance(verdict, Redrive):
            done["due_at"] = now
        given = {"verdict": name_of(verdict), "detail": dump_json(dict(detail))}
        sealed = _sealed(self.connection, started, given)
        _set(self.connection, [started.id], **done, **sealed)
        return HandlingState.DONE

    @writes
    def fail(self, started: Handling, error: str, *, again_s: float | None) -> None:
        """Record that the handler ended without a verdict. The handler is called again after ``again_s``
        seconds (None: never), unless it was called :data:`~celery_dlq.model.handling.TRIES` times."""
        if not _is_running(self.connection, started):
            return
        now, error = clock.now(self.connection), fit_text(handling.c.error, error)
        if again_s is None or started.tries >= TRIES:
            values = _ended(_FAILED, now, error=error)
        else:
            values = _again(now, now + timedelta(seconds=again_s), error)
        _set(self.connection, [started.id], **_sealed(self.connection, started, values))

    @writes
    def to_redrive(self, lease: Lease, name: str, *, limit: int) -> list[Handling]:
        """The handlings of a handler whose letters are to be sent back, and have no operation yet. Those
        whose letters have changed since are ended."""
        if not is_held(self.connection, lease):
            return []
        now = clock.now(self.connection)
        due = and_(self.ours(handling), handling.c.name == name, _is_due(_DONE, now))
        stored = select(handling).where(due).order_by(handling.c.due_at).limit(limit)
        rows = read_shown(self.connection, handling, stored)
        changed = [row["id"] for row in rows if not _is_as_chosen(self.connection, row)]
        if changed:
            _set(self.connection, changed, **_ended(_STALE, now, error=_CHANGED))
        return [_handling_from(row) for row in rows if row["id"] not in changed]

    @writes
    def redrive(self, lease: Lease, ids: Sequence[int], operation: Operation) -> bool:
        """Store the operation that sends the letters of ``ids`` back, and note it with them. False if the
        lease is lost."""
        if not is_held(self.connection, lease):
            return False
        create_operation(self.connection, operation)
        _set(self.connection, ids, operation=operation.id, due_at=None)
        return True

    @reads
    def find(
        self,
        *,
        name: str | None = None,
        letter_id: str | None = None,
        states: frozenset[HandlingState] = frozenset(),
        limit: int = 50,
        after: int | None = None,
    ) -> Rows[Handling]:
        """Handlings, the newest first.

        :param letter_id: only those of this letter.
        :param states: only those in these states; empty for all.
        :param after: the cursor of the previous rows.
        """
        found: Conditions = [
            self.ours(handling),
            *([handling.c.id < after] if after is not None else []),
        ]
        if name is not None:
            found.append(handling.c.name == name)
        if letter_id is not None:
            found.append(handling.c.task_id == stored_id(letter_id))
        if states:
            found.append(handling.c.state.in_(sorted(state.value for state in states)))
        newest = select(handling).where(*found).order_by(handling.c.id.desc()).limit(limit + 1)
        return Rows.first(_handlings(self.connection, newest), limit, attrgetter("id"))

    @reads
    def count(self, names: Collection[str]) -> Mapping[str, Mapping[HandlingState, int]]:
        """The number of handlings in each state, by automation, over all versions."""
        counted: dict[str, Counter[HandlingState]] = {name: Counter() for name in names}
        these = [handling.c.name.in_(sorted(names))]
        columns = handling.c.name, handling.c.state
        found = sums_by(self.connection, func.count(), *columns, where=these)
        for (name, state), number in found.items():
            counted[name][HandlingState(state)] = number
        return counted


def _changed_letter(
    connection: Connection,
    started: Handling,
    seen: DeadLetter,
    verdict: HandlerVerdict,
    edit: Edit | None,
    now: datetime,
    searched: Searched,
) -> bool:
    """Discard or edit the letter unless it has changed since ``seen``. Returns whether it was unchanged."""
    row = lock_dead(connection, started.task_id)
    if row is None or row["last_failed_at"] != started.failed_at:
        return False
    if not has_message(row, seen.envelope):
        return False
    if isinstance(verdict, Discard):
        who, is_clear = actor_of(started.name), sealing_of(connection).ring is None
        # The reason may repeat contents of the letter, and that of closing is not sealed.
        why = verdict.reason if is_clear else f"by {started.name}; its reason is in its handling"
        discard_one(connection, row, who=who, why=why, at=now)
    elif edit is not None:
        save_edit(connection, edit, searched)
    return True


def _ended(state: str, now: datetime, *, error: str = "") -> dict[str, Any]:
    return {"state": state, "ended_at": now, "due_at": None, "error": error}


def _again(now: datetime, due_at: datetime, error: str) -> dict[str, Any]:
    return {"state": _QUEUED, "sends": 0, "queued_at": now, "due_at": due_at, "error": error}


def _set(connection: Connection, ids: Sequence[int], **values: Any) -> None:
    these = one_of(connection, handling.c.id, ids)
    connection.execute(update(handling).where(these).values(values))


def _sealed(connection: Connection, of: Handling, values: dict[str, Any]) -> dict[str, Any]:
    row = {"task_id": of.task_id, **values}
    return sealing_of(connection).seal_for_letters(handling, [row])[0]


def _is_due(state: str, now: datetime) -> ColumnElement[bool]:
    return and_(handling.c.state == state, handling.c.due_at <= now)


def _locked(connection: Connection, handling_id: int) -> Row | None:
    its = handling.c.id == handling_id, is_ours(connection, handling)
    stored: Select[Any] = select(handling).where(*its).with_for_update()
    return connection.execute(stored).mappings().one_or_none()


def _is_running(connection: Connection, started: Handling) -> bool:
    """Whether ``started`` is the last call of its handler, and has not ended. If so, its row is locked."""
    row = _locked(connection, started.id)
    return row is not None and (row["state"], row["tries"]) == (_RUNNING, started.tries)


def _is_as_chosen(connection: Connection, row: Row) -> bool:
    """Whether the letter is dead, and has not failed again."""
    same = letter.c.task_id == row["task_id"], letter.c.last_failed_at == row["failed_at"]
    dead = select(letter.c.id).where(*same, letter.c.state == State.DEAD.value)
    return connection.execute(dead).first() is not None


def _handlings(connection: Connection, stored: Select[Any]) -> list[Handling]:
    return [_handling_from(row) for row in read_shown(connection, handling, stored)]


def _handling_from(row: Row) -> Handling:
    return read_row(Handling, row, detail=json.loads(row["detail"]))
