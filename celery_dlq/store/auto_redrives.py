"""Automatic redrives: their states, their runs, and the letters that they may take."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, insert, or_, select
from sqlalchemy.engine import Connection

from celery_dlq.model.auto_redrive import (
    EVERY,
    AutoMode,
    AutoRun,
    AutoSends,
    AutoState,
    AutoStatus,
    AutoTry,
    Candidate,
    HeldLetter,
    actor_of,
)
from celery_dlq.model.operation import ENDED, OperationState, SendingState
from celery_dlq.model.states import OPEN_STATES, State
from celery_dlq.store.base import Filter, Lease, Operation
from celery_dlq.store.coordination import is_held
from celery_dlq.store.database import tables
from celery_dlq.store.database.tables import (
    auto_letter,
    auto_redrive,
    auto_run,
    held,
    letter,
    operation,
    sending,
)
from celery_dlq.store.database.transactions import StoreRole, Transactions, reads, writes
from celery_dlq.store.listener import StoreListener
from celery_dlq.store.redrive.operations import create_operation
from celery_dlq.store.rows import audit
from celery_dlq.store.rows.query import Conditions, conditions, in_states, one_of, sums_by
from celery_dlq.store.rows.rows import fit, read_row, replace_rows, stored_id

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
#: Runs whose letters are read for the last outcomes.
_RUNS_BACK = 100

_OVER = sorted(state.value for state in ENDED)
_NOT_OVER = sorted(state.value for state in OperationState if state not in ENDED)
#: Whether the operation of a run has ended, or was deleted.
_IS_OVER = or_(operation.c.id.is_(None), operation.c.state.in_(_OVER))
_SENDING_OF_LETTER = and_(
    sending.c.operation == auto_letter.c.run, sending.c.task_id == auto_letter.c.task_id
)
#: The letters of runs, each with its run, its sending and the run's operation, if there are any.
_TRIES = (
    auto_letter.join(auto_run, auto_run.c.id == auto_letter.c.run)
    .outerjoin(operation, operation.c.id == auto_run.c.id)
    .outerjoin(sending, _SENDING_OF_LETTER)
)


class AutoRedrives(StoreRole):
    """The states, runs and letters of automatic redrives.

    :param listener: is notified of each that has suspended itself.
    """

    def __init__(self, transactions: Transactions, listener: StoreListener) -> None:
        super().__init__(transactions)
        self._listener = listener

    @reads
    def statuses(self, connection: Connection) -> dict[str, AutoStatus]:
        """The states that were set, and when each one last looked for letters, by name."""
        rows = connection.execute(select(auto_redrive)).mappings()
        return {row["name"]: read_row(AutoStatus, row) for row in rows}

    @writes
    def looked(self, connection: Connection, lease: Lease, name: str, now: datetime) -> bool:
        """Record that an automatic redrive looks for letters; False if the lease is lost."""
        if not is_held(connection, lease):
            return False
        _write(connection, name, {"looked_at": now})
        return True

    def set_state(
        self, name: str, state: AutoState, *, who: str, why: str = "", now: datetime
    ) -> bool:
        """Pause, suspend or resume; audited. Returns whether the state has changed. Only an active one can be
        suspended."""
        has_changed = self._set_state(name, state, who=who, why=why, now=now)
        if has_changed and state is AutoState.SUSPENDED:
            self._listener.suspended(AutoStatus(name=name, state=state, at=now, who=who, why=why))
        return has_changed

    @writes
    def make_due(self, connection: Connection, name: str, *, who: str, now: datetime) -> None:
        """Let an automatic redrive look for letters at once; audited."""
        _write(connection, name, {"looked_at": None})
        audit.write_audit(
            connection, who=who, act="run", count=0, why="", detail={"auto": name}, at=now
        )

    @writes
    def _set_state(
        self,
        connection: Connection,
        name: str,
        state: AutoState,
        *,
        who: str,
        why: str,
        now: datetime,
    ) -> bool:
        was = _locked_state(connection, name)
        if was is state or (state is AutoState.SUSPENDED and was is not AutoState.ACTIVE):
            return False
        _write(connection, name, {"state": state.value, "at": now, "who": who, "why": why})
        audit.write_audit(
            connection, who=who, act=_ACTS[state], count=0, why=why, detail={"auto": name}, at=now
        )
        return True

    @reads
    def candidates(
        self,
        connection: Connection,
        wanted: Filter,
        *,
        failed_by: datetime,
        limit: int,
        after: Candidate | None = None,
    ) -> list[Candidate]:
        """Dead letters of ``wanted`` whose last failure was not after ``failed_by`` and that are not held,
        oldest failure first, each with its automatic redrives.

        :param after: the last letter of the previous page.
        """
        found = [
            in_states([State.DEAD]),
            *conditions(connection, wanted),
            letter.c.last_failed_at <= failed_by,
            ~select(1).where(held.c.task_id == letter.c.task_id).correlate(letter).exists(),
        ]
        if after is not None:
            found.append(_behind(after))
        oldest = (
            select(*(letter.c[name] for name in _CANDIDATE))
            .where(*found)
            # In the order of the indexes.
            .order_by(letter.c.last_failed_at, letter.c.id)
            .limit(limit)
        )
        rows = connection.execute(oldest).mappings().all()
        tries = _tries(connection, [row["task_id"] for row in rows])
        return [
            read_row(
                Candidate, row, number=row["id"], failed_at=row["last_failed_at"],
                tries=tries.get(row["task_id"], ()),
            )
            for row in rows
        ]  # fmt: skip

    @reads
    def matching(
        self, connection: Connection, wanted: Filter, task_ids: Collection[str]
    ) -> frozenset[str]:
        """The letters of ``task_ids`` that ``wanted`` finds among dead ones."""
        these = one_of(connection, letter.c.task_id, sorted(map(stored_id, task_ids)))
        found = [in_states([State.DEAD]), *conditions(connection, wanted), these]
        return frozenset(connection.execute(select(letter.c.task_id).where(*found)).scalars())

    @reads
    def open_in_groups(
        self, connection: Connection, fingerprints: Collection[str]
    ) -> dict[str, int]:
        """How many open letters each group has."""
        group = tables.group
        these = one_of(connection, group.c.fingerprint, sorted(fingerprints))
        total = func.sum(group.c.open_count)
        return sums_by(connection, total, group.c.fingerprint, where=[these])

    @reads
    def sends(self, connection: Connection, name: str, mode: AutoMode, now: datetime) -> AutoSends:
        """How many letters were sent, or may still be sent, lately."""
        by_name = auto_run.c.name == name
        return AutoSends(
            day=_count_sends(connection, mode, now - DAY, by_name),
            hour_of_all=_count_sends(connection, mode, now - HOUR),
        )

    @writes
    def begin(
        self,
        connection: Connection,
        lease: Lease,
        run: AutoRun,
        letters: Mapping[str, str],
        new: Operation | None,
        *,
        repair: Mapping[str, object] | None = None,
    ) -> bool:
        """Write a run, its letters with their fingerprints, and its operation; all or nothing. False if the
        lease is lost, or if the automatic redrive is no longer active.

        :param new: None for a shadow run.
        """
        if not is_held(connection, lease):
            return False
        states = {_locked_state(connection, name) for name in (EVERY, run.name)}
        if states != {AutoState.ACTIVE}:
            return False
        connection.execute(insert(auto_run).values(**vars(run) | {"mode": run.mode.value}))
        rows = [
            {"run": run.id, "task_id": stored_id(task_id), "fingerprint": fingerprint}
            for task_id, fingerprint in sorted(letters.items())
        ]
        connection.execute(insert(auto_letter), rows)
        if new is not None:
            create_operation(connection, new, repair=repair)
        return True

    @reads
    def unfinished(self, connection: Connection, name: str | None = None) -> list[str]:
        """The operations of automatic redrives that have not ended, the oldest first.

        :param name: only those of this one.
        """
        runs = (
            select(auto_run.c.id)
            .join(operation, operation.c.id == auto_run.c.id)
            .where(operation.c.state.in_(_NOT_OVER))
            .order_by(auto_run.c.at, auto_run.c.id)
        )
        if name is not None:
            runs = runs.where(auto_run.c.name == name)
        return list(connection.execute(runs).scalars())

    @writes
    def hold(
        self, connection: Connection, lease: Lease, name: str, why: Mapping[str, str], now: datetime
    ) -> int:
        """Hold letters, each for its reason; audited. Returns how many were not held before; 0 if the lease
        is lost."""
        if not is_held(connection, lease):
            return 0
        keys = {stored_id(task_id): reason for task_id, reason in why.items()}
        known = select(held.c.task_id).where(one_of(connection, held.c.task_id, sorted(keys)))
        for task_id in connection.execute(known).scalars():
            del keys[task_id]
        if not keys:
            return 0
        rows = [
            {**fit(held, {"name": name, "why": reason}), "task_id": task_id, "at": now}
            for task_id, reason in sorted(keys.items())
        ]
        connection.execute(insert(held), rows)
        audit.write_audit(
            connection, who=actor_of(name), act="hold", count=len(rows),
            detail={"auto": name, **audit.by_filter(Filter(ids=tuple(keys)))}, at=now,
        )  # fmt: skip
        return len(rows)

    @reads
    def held(self, connection: Connection, task_ids: Sequence[str]) -> dict[str, HeldLetter]:
        """The letters of ``task_ids`` that are held, by their task ids."""
        these = one_of(connection, held.c.task_id, sorted(map(stored_id, task_ids)))
        rows = connection.execute(select(held).where(these)).mappings()
        return {row["task_id"]: HeldLetter(**row) for row in rows}

    @reads
    def count_held(self, connection: Connection) -> dict[str, int]:
        """How many open letters each automatic redrive holds."""
        return count_held(connection)

    @reads
    def outcomes(
        self, connection: Connection, name: str, *, since: datetime | None, limit: int
    ) -> list[SendingState]:
        """The last outcomes of an automatic redrive, newest first: successes and failures.

        :param since: only those that came later.
        """
        named = [SendingState.SUCCEEDED.value, SendingState.FAILED.value]
        found: Conditions = [
            sending.c.operation.in_(_latest(connection, name)),
            sending.c.state.in_(named),
        ]
        if since is not None:
            found.append(sending.c.ended_at > since)
        latest = select(sending.c.state).where(*found).order_by(sending.c.ended_at.desc())
        return [SendingState(state) for state in connection.execute(latest.limit(limit)).scalars()]

    @reads
    def aborted(
        self, connection: Connection, name: str, *, since: datetime | None
    ) -> tuple[str, str] | None:
        """Id and cause of the last operation of an automatic redrive that was aborted.

        :param since: only if it ended later.
        """
        is_aborted = operation.c.state == OperationState.ABORTED.value
        found: Conditions = [operation.c.id.in_(_latest(connection, name)), is_aborted]
        if since is not None:
            found.append(operation.c.ended_at > since)
        latest = (
            select(operation.c.id, operation.c.cause)
            .where(*found)
            .order_by(operation.c.ended_at.desc())
            .limit(1)
        )
        row = connection.execute(latest).one_or_none()
        return None if row is None else (row.id, row.cause)

    @reads
    def runs(
        self, connection: Connection, name: str | None = None, *, limit: int = 50
    ) -> list[AutoRun]:
        """Runs that chose letters, newest first.

        :param name: only those of this automatic redrive.
        """
        latest = select(auto_run).order_by(auto_run.c.at.desc(), auto_run.c.id).limit(limit)
        if name is not None:
            latest = latest.where(auto_run.c.name == name)
        return [read_row(AutoRun, row) for row in connection.execute(latest).mappings()]

    @reads
    def run(self, connection: Connection, run_id: str) -> AutoRun | None:
        """The run with this id, or None."""
        stored = select(auto_run).where(auto_run.c.id == run_id)
        row = connection.execute(stored).mappings().one_or_none()
        return None if row is None else read_row(AutoRun, row)

    @reads
    def letters_of(self, connection: Connection, run: str) -> list[str]:
        """The task ids of the letters of a run, in their order."""
        of_run = select(auto_letter.c.task_id).where(auto_letter.c.run == run)
        return list(connection.execute(of_run.order_by(auto_letter.c.task_id)).scalars())


#: The names of the changes of state in the audit.
_ACTS: Mapping[AutoState, str] = {
    AutoState.ACTIVE: "resume",
    AutoState.PAUSED: "pause",
    AutoState.SUSPENDED: "suspend",
}

_CANDIDATE = (
    "id", "task_id", "task", "fingerprint", "release", "last_failed_at", "redrive_count",
)  # fmt: skip


def _behind(after: Candidate) -> ColumnElement[bool]:
    later = letter.c.last_failed_at > after.failed_at
    same = and_(letter.c.last_failed_at == after.failed_at, letter.c.id > after.number)
    return or_(later, same)


def _tries(connection: Connection, task_ids: Sequence[str]) -> dict[str, tuple[AutoTry, ...]]:
    if not task_ids:
        return {}
    stored = (
        select(
            auto_letter.c.task_id, auto_letter.c.fingerprint, auto_run.c.at, auto_run.c.mode,
            sending.c.state, _IS_OVER.label("is_over"),
        )
        .select_from(_TRIES)
        .where(one_of(connection, auto_letter.c.task_id, task_ids))
        .order_by(auto_run.c.at, auto_run.c.id)
    )  # fmt: skip
    found: dict[str, tuple[AutoTry, ...]] = {}
    for row in connection.execute(stored):
        state = None if row.state is None else SendingState(row.state)
        one = AutoTry(
            at=row.at,
            mode=AutoMode(row.mode),
            fingerprint=row.fingerprint,
            state=state,
            is_over=bool(row.is_over),
        )
        found[row.task_id] = (*found.get(row.task_id, ()), one)
    return found


def _count_sends(
    connection: Connection, mode: AutoMode, since: datetime, *also: ColumnElement[bool]
) -> int:
    of_mode = auto_run.c.at > since, auto_run.c.mode == mode.value
    counted = select(func.count()).select_from(_TRIES).where(*of_mode, *also)
    if mode is AutoMode.ON:
        counted = counted.where(or_(sending.c.operation.is_not(None), ~_IS_OVER))
    return int(connection.execute(counted).scalar_one())


def _latest(connection: Connection, name: str) -> Sequence[str]:
    """The ids of the last runs. MySQL does not take a subquery with a limit."""
    latest = (
        select(auto_run.c.id)
        .where(auto_run.c.name == name, auto_run.c.mode == AutoMode.ON.value)
        .order_by(auto_run.c.at.desc())
        .limit(_RUNS_BACK)
    )
    return connection.execute(latest).scalars().all()


def _locked_state(connection: Connection, name: str) -> AutoState:
    stored: Select[Any] = select(auto_redrive.c.state).where(auto_redrive.c.name == name)
    state = connection.execute(stored.with_for_update()).scalar_one_or_none()
    return AutoState.ACTIVE if state is None else AutoState(state)


def _write(connection: Connection, name: str, values: Mapping[str, Any]) -> None:
    new = {"state": AutoState.ACTIVE.value, "who": "", "why": "", **values}
    row = {**new, **fit(auto_redrive, {"name": name, "who": new["who"], "why": new["why"]})}
    replace_rows(connection, auto_redrive, [row], values)


def count_held(connection: Connection) -> dict[str, int]:
    """How many open letters each automatic redrive holds."""
    of_it = letter.c.task_id == held.c.task_id, in_states(OPEN_STATES)
    is_open = select(1).where(*of_it).correlate(held).exists()
    return sums_by(connection, func.count(), held.c.name, where=[is_open])
