"""Automations: their states, the letters that they choose, and the letters that they hold.

One engine at a time chooses letters under a lease. An automatic redrive sends them with an operation. A
handler gets a message for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, insert, select
from sqlalchemy.engine import Connection

from celery_dlq.model.automation import (
    ACTOR,
    EVERY,
    AutoMode,
    AutoState,
    AutoStatus,
    Candidate,
    HeldLetter,
    actor_of,
)
from celery_dlq.model.handling import HandlingState
from celery_dlq.model.operation import ENDED, OperationState, SendingState
from celery_dlq.store.base import Filter, Lease, Operation, Scope
from celery_dlq.store.candidates import REDRIVEN, Candidates
from celery_dlq.store.coordination import is_held
from celery_dlq.store.database import clock
from celery_dlq.store.database.namespaces import is_ours
from celery_dlq.store.database.sealing import read_shown, sealing_of
from celery_dlq.store.database.tables import auto_hold, automation, handling, operation, sending
from celery_dlq.store.database.transactions import after_commit, reads, writes
from celery_dlq.store.handlings import Handlings
from celery_dlq.store.redrive.operations import create_operation
from celery_dlq.store.rows import audit
from celery_dlq.store.rows.query import Conditions, begins_with, one_of
from celery_dlq.store.rows.rows import fit, read_row, replace_rows, stored_id

#: The names of the changes of state in the audit.
_ACTS: Mapping[AutoState, str] = {
    AutoState.ACTIVE: "resume",
    AutoState.PAUSED: "pause",
    AutoState.SUSPENDED: "suspend",
}

#: Operations whose letters are read for the last outcomes.
_RUNS_BACK = 100

_NOT_OVER = sorted(state.value for state in OperationState if state not in ENDED)


class Automations(Candidates, Handlings):
    """The automations and their handlings. Calls that need the lease change nothing without it. The listener
    is notified of each automation that has suspended itself."""

    @reads
    def statuses(self) -> dict[str, AutoStatus]:
        """The states that were set, and when each one last looked for letters, by name."""
        stored = select(automation).where(self.ours(automation))
        rows = read_shown(self.connection, automation, stored)
        return {row["name"]: read_row(AutoStatus, row) for row in rows}

    @writes
    def looked(self, lease: Lease, name: str, now: datetime) -> bool:
        """Record that an automation looks for letters; False if the lease is lost."""
        if not is_held(self.connection, lease):
            return False
        _write(self.connection, name, {"looked_at": now})
        return True

    @writes
    def set_state(
        self, name: str, state: AutoState, *, who: str, why: str = "", now: datetime
    ) -> bool:
        """Pause, suspend or resume; audited. Returns whether the state has changed. Only an active one can be
        suspended."""
        was = _locked_state(self.connection, name)
        if was is state or (state is AutoState.SUSPENDED and was is not AutoState.ACTIVE):
            return False
        _write(self.connection, name, {"state": state.value, "at": now, "who": who, "why": why})
        audit.write_audit(
            self.connection, who=who, act=_ACTS[state], why=why, count=0, at=now,
            detail={"auto": name},
        )  # fmt: skip
        if state is AutoState.SUSPENDED:
            status = AutoStatus(name=name, state=state, at=now, who=who, why=why)
            after_commit(self.connection, partial(self._listener.suspended, status))
        return True

    @writes
    def make_due(self, name: str, *, who: str, now: datetime) -> None:
        """Let an automatic redrive look for letters at once; audited."""
        _write(self.connection, name, {"looked_at": None})
        audit.write_audit(
            self.connection, who=who, act="run", count=0, why="", detail={"auto": name}, at=now
        )

    @writes
    def queue(self, lease: Lease, scope: Scope, letters: Sequence[Candidate]) -> bool:
        """Queue letters for a handler. False if the lease is lost, or if it is no longer active."""
        now = clock.now(self.connection)
        new = {
            "version": scope.version, "state": HandlingState.QUEUED.value, "queued_at": now,
            "due_at": now,
        }  # fmt: skip
        return _add(self.connection, lease, scope.name, letters, new)

    @writes
    def begin(
        self,
        lease: Lease,
        name: str,
        letters: Sequence[Candidate],
        new: Operation,
        *,
        mode: AutoMode = AutoMode.ON,
        repair: Mapping[str, object] | None = None,
    ) -> bool:
        """Write the letters that an automatic redrive has chosen, and the operation that sends them; all or
        nothing. False if the lease is lost, or if it is no longer active.

        :param new: the operation; in shadow mode, only its id and its time are used.
        """
        is_on, at = mode is AutoMode.ON, new.created_at
        state = HandlingState.DONE if is_on else HandlingState.SHADOW
        acts = {
            "version": new.id, "operation": new.id if is_on else "", "state": state.value,
            "verdict": REDRIVEN, "queued_at": at, "ended_at": at,
        }  # fmt: skip
        is_begun = _add(self.connection, lease, name, letters, acts)
        if is_begun and is_on:
            create_operation(self.connection, new, repair=repair)
        return is_begun

    @reads
    def unfinished(self, name: str | None = None) -> list[str]:
        """The operations of automations that have not ended, the oldest first.

        :param name: only those of this one.
        """
        by = (
            begins_with(operation.c.who, ACTOR)
            if name is None
            else operation.c.who == actor_of(name)
        )
        ours = self.ours(operation), operation.c.state.in_(_NOT_OVER)
        found = select(operation.c.id).where(*ours, by)
        in_order = operation.c.created_at, operation.c.id
        return list(self.connection.scalars(found.order_by(*in_order)))

    @writes
    def hold(self, lease: Lease, name: str, why: Mapping[str, str], now: datetime) -> int:
        """Hold letters, each for its reason; audited. Returns how many were not held before; 0 if the lease
        is lost."""
        if not is_held(self.connection, lease):
            return 0
        keys = {stored_id(task_id): reason for task_id, reason in why.items()}
        known = one_of(self.connection, auto_hold.c.task_id, sorted(keys))
        for task_id in self.connection.scalars(select(auto_hold.c.task_id).where(known)):
            del keys[task_id]
        if not keys:
            return 0
        rows = [
            {**fit(auto_hold, {"name": name, "why": reason}), "task_id": task_id, "at": now}
            for task_id, reason in sorted(keys.items())
        ]
        self.connection.execute(insert(auto_hold), rows)
        audit.write_audit(
            self.connection, who=actor_of(name), act="hold", count=len(rows),
            detail={"auto": name, **audit.by_filter(Filter(ids=tuple(keys)))}, at=now,
        )  # fmt: skip
        return len(rows)

    @reads
    def held(self, task_ids: Sequence[str]) -> dict[str, HeldLetter]:
        """The letters of ``task_ids`` that are held, by their task ids."""
        these = one_of(self.connection, auto_hold.c.task_id, sorted(map(stored_id, task_ids)))
        rows = self.connection.execute(select(auto_hold).where(these)).mappings()
        return {row["task_id"]: read_row(HeldLetter, row) for row in rows}

    @reads
    def outcomes(self, name: str, *, since: datetime | None, limit: int) -> list[SendingState]:
        """The last outcomes of an automation's redrives, newest first: successes and failures.

        :param since: only those that came later.
        """
        named = [SendingState.SUCCEEDED.value, SendingState.FAILED.value]
        # MySQL does not accept a subquery with a limit.
        its = _is_by(self.connection, name)
        newest = select(operation.c.id).where(its).order_by(operation.c.created_at.desc())
        ids = self.connection.scalars(newest.limit(_RUNS_BACK)).all()
        found: Conditions = [sending.c.operation.in_(ids), sending.c.state.in_(named)]
        if since is not None:
            found.append(sending.c.ended_at > since)
        latest = select(sending.c.state).where(*found).order_by(sending.c.ended_at.desc())
        return [SendingState(state) for state in self.connection.scalars(latest.limit(limit))]

    @reads
    def aborted(self, name: str, *, since: datetime | None) -> tuple[str, str] | None:
        """Id and cause of the last operation of an automation that was aborted.

        :param since: only if it ended later.
        """
        is_by = _is_by(self.connection, name)
        found = [is_by, operation.c.state == OperationState.ABORTED.value]
        if since is not None:
            found.append(operation.c.ended_at > since)
        latest = select(operation.c.id, operation.c.cause).where(*found)
        latest = latest.order_by(operation.c.ended_at.desc()).limit(1)
        rows = read_shown(self.connection, operation, latest)
        return (rows[0]["id"], rows[0]["cause"]) if rows else None


def _add(
    connection: Connection,
    lease: Lease,
    name: str,
    letters: Sequence[Candidate],
    values: Mapping[str, Any],
) -> bool:
    """Write a handling for each letter, if the lease is held and the automation is active."""
    if not is_held(connection, lease):
        return False
    if {_locked_state(connection, one) for one in (EVERY, name)} != {AutoState.ACTIVE}:
        return False
    empty = {
        "verdict": "", "detail": "{}", "error": "", "sends": 0, "tries": 0, "due_at": None,
        "ended_at": None, "worker": "", "operation": "",
    }  # fmt: skip
    connection.execute(
        insert(handling),
        [
            {
                **empty, **values, "name": name, "task_id": one.task_id,
                "fingerprint": one.fingerprint, "failed_at": one.failed_at,
            }
            for one in letters
        ],
    )  # fmt: skip
    return True


def _is_by(connection: Connection, name: str) -> ColumnElement[bool]:
    return and_(is_ours(connection, operation), operation.c.who == actor_of(name))


def _locked_state(connection: Connection, name: str) -> AutoState:
    its = is_ours(connection, automation), automation.c.name == name
    stored: Select[Any] = select(automation.c.state).where(*its)
    state = connection.scalar(stored.with_for_update())
    return AutoState.ACTIVE if state is None else AutoState(state)


def _write(connection: Connection, name: str, values: Mapping[str, Any]) -> None:
    new = {"state": AutoState.ACTIVE.value, "who": "", "why": "", **values}
    row = {**new, **fit(automation, {"name": name, "who": new["who"], "why": new["why"]})}
    sealed = sealing_of(connection).seal(automation, row)
    replace_rows(connection, automation, [sealed], values)
