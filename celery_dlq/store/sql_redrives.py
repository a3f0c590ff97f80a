"""The part of the SQL store that redrives are made with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from sqlalchemy.engine import Connection

from celery_dlq.operation import OperationState, Sending, SendingState
from celery_dlq.store import (
    accepting,
    audit,
    edits,
    endings,
    history,
    operations,
    pruning,
    sendings,
)
from celery_dlq.store.base import AuditRow, Change, Claim, Edit, Filter, Operation, Rows
from celery_dlq.store.engine import Database
from celery_dlq.store.listener import StoreListener

T = TypeVar("T")


class SQLRedrives:
    """A :class:`~celery_dlq.store.redrives.Redrives` in a SQL database; see there for what each method
    does."""

    database: Database
    _listener: StoreListener

    @property
    def claims_at_once(self) -> int:
        # A SQLite file has one writer, and who waits for it looks again after a pause.
        return 1 if self.database.dialect == "sqlite" else 2

    def create_operation(self, operation: Operation) -> None:
        self._write(lambda connection: operations.create(connection, operation))

    def operation(self, operation_id: str) -> Operation | None:
        return self._read(lambda connection: operations.read(connection, operation_id))

    def match_operations(self, prefix: str, limit: int = 10) -> list[str]:
        return self._read(lambda connection: operations.match_ids(connection, prefix, limit))

    def operations(
        self, *, states: frozenset[OperationState] = frozenset(), limit: int = 50
    ) -> list[Operation]:
        return self._read(lambda connection: operations.find(connection, states, limit))

    def move_operation(
        self, operation_id: str, to: OperationState, *, who: str, cause: str = "", now: datetime
    ) -> Operation:
        operation = self._write(
            lambda connection: operations.move(
                connection, operation_id, to, who=who, cause=cause, now=now
            )
        )
        self._listener.moved(operation)
        return operation

    def claim_for(
        self,
        operation: Operation,
        *,
        token: str,
        lease_until: datetime,
        limit: int,
        now: datetime,
    ) -> Claim:
        return self._write(
            lambda connection: sendings.claim(
                connection, operation, token=token, lease_until=lease_until, limit=limit, now=now
            )
        )

    def end_claim(
        self,
        operation_id: str,
        token: str,
        sent: Mapping[str, str],
        *,
        silent: Collection[str] = (),
        now: datetime,
    ) -> None:
        self._write(
            lambda connection: sendings.end_claim(
                connection, operation_id, token, sent, silent, now
            )
        )
        self._listener.redriven(list(sent))

    def confirm_sendings(
        self,
        operation_id: str,
        token: str,
        sent: Mapping[str, str],
        *,
        silent: Collection[str] = (),
        now: datetime,
    ) -> int:
        moved = self._write(
            lambda connection: sendings.confirm(connection, operation_id, token, sent, silent, now)
        )
        self._listener.redriven(list(sent))
        return moved

    def skip_sendings(
        self, operation_id: str, token: str, why: Mapping[str, str], *, now: datetime
    ) -> int:
        return self._write(
            lambda connection: sendings.skip(connection, operation_id, token, why, now)
        )

    def release_sendings(self, operation_id: str, token: str, ids: Sequence[str]) -> int:
        return self._write(
            lambda connection: sendings.release(connection, operation_id, token, ids)
        )

    def free_claims(self, operation_id: str) -> int:
        return self._write(lambda connection: sendings.free(connection, operation_id))

    def rescue(self, now: datetime) -> int:
        return self._write(lambda connection: sendings.rescue(connection, now))

    def recent_endings(self, operation_id: str, limit: int) -> list[Sending]:
        return self._read(
            lambda connection: history.recent_endings(connection, operation_id, limit)
        )

    def sendings(
        self,
        operation_id: str,
        *,
        states: frozenset[SendingState] = frozenset(),
        limit: int = 50,
        after: str | None = None,
    ) -> Rows[Sending]:
        return self._read(
            lambda connection: history.of_operation(
                connection, operation_id, states=states, limit=limit, after=after
            )
        )

    def sendings_of(self, task_id: str) -> list[Sending]:
        return self._read(lambda connection: history.of_letter(connection, task_id))

    def count_awaited(self, wanted: Filter) -> int:
        return self._read(lambda connection: history.count_awaited(connection, wanted))

    def accept_sendings(self, keys: Sequence[tuple[str, int, str]]) -> list[bool]:
        if not keys:
            return []
        return self._write(lambda connection: accepting.accept(connection, keys))

    def expire_sendings(self, *, sent_before: datetime, now: datetime) -> int:
        return self._write(
            lambda connection: endings.expire(connection, sent_before=sent_before, now=now)
        )

    def save_edit(self, edit: Edit) -> bool:
        return self._write(lambda connection: edits.save(connection, edit))

    def changes_of(self, task_id: str) -> list[Change]:
        return self._read(lambda connection: edits.changes_of(connection, task_id))

    def prune_history(self, before: datetime, *, limit: int) -> int:
        return self._write(lambda connection: pruning.prune(connection, before, limit))

    def audit(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        act: str | None = None,
        who: str | None = None,
        since: datetime | None = None,
        letter: str | None = None,
    ) -> Rows[AuditRow]:
        return self._read(
            lambda connection: audit.read(
                connection, limit=limit, after=after, act=act, who=who, since=since, letter=letter
            )
        )

    def _ready(self) -> None:
        raise NotImplementedError

    def _read(self, work: Callable[[Connection], T]) -> T:
        self._ready()
        return self.database.read(work)

    def _write(self, work: Callable[[Connection], T]) -> T:
        self._ready()
        return self.database.write(work)
