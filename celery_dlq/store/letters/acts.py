"""Acts of people on many letters, chunk by chunk. Each chunk is a transaction that changes letters, the
counts, and the act's audit row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.store.database import tables
from celery_dlq.store.database.transactions import Transactions
from celery_dlq.store.portion import Portion
from celery_dlq.store.rows import audit
from celery_dlq.store.rows.query import conditions, in_states, without_claimed
from celery_dlq.store.rows.rows import Row

letter = tables.letter

#: The most letters of one transaction.
CHUNK = 1_000

#: The columns that the counts and a change need.
MEMBER = (
    letter.c.id, letter.c.task_id, letter.c.state, letter.c.fingerprint, letter.c.task,
    letter.c.exception_type, letter.c.last_failed_at, letter.c.queue, letter.c.reason, letter.c.route,
    letter.c.claim_token,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Act(ABC):
    """An act: its letters, the change that it makes, and the person and reason for the audit."""

    name: str
    wanted: Filter
    #: Only letters in these states are changed.
    sources: frozenset[State]
    who: str
    why: str
    at: datetime

    def carry_out(self, transactions: Transactions) -> int:
        """Change all letters that failed before the act began; returns how many. A transaction that takes too
        long is tried again with fewer letters.

        :raises StoreError: the store failed. The chunks before that stay changed.
        """
        until = transactions.read(self.newest_failure)
        total, portion = 0, Portion(CHUNK)
        #: The act's one audit row, written with the first chunk.
        audit_id: int | None = None
        while until is not None:
            step = partial(self._write_chunk, transactions, until, audit_id)
            changed, audit_id = portion.attempt(step)
            if not changed:
                break
            total += changed
        return total

    @abstractmethod
    def change(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Change letters, which are locked, and their counts."""

    def newest_failure(self, connection: Connection) -> datetime | None:
        """The time of the last failure that the act affects. It does not affect letters that die while it
        runs."""
        # One state at a time: so the index has the answer at its end, however many letters there are.
        found = [self._newest_failure_in(connection, state) for state in sorted(self.sources)]
        return max((moment for moment in found if moment is not None), default=None)

    def change_chunk(
        self, connection: Connection, until: datetime, audit_id: int | None, size: int = CHUNK
    ) -> tuple[int, int | None]:
        """Change the next letters; returns how many, and the id of the audit row."""
        changed = self.change_next(connection, until, size)
        if not changed:
            return 0, audit_id
        audit_id = audit.write_audit(
            connection, who=self.who, act=self.name, why=self.why, count=changed,
            detail=audit.by_filter(self.wanted), at=self.at, row=audit_id,
        )  # fmt: skip
        return changed, audit_id

    def change_next(self, connection: Connection, until: datetime, size: int = CHUNK) -> int:
        """The same without the audit, which the caller writes."""
        rows = self._next_rows(connection, until, size)
        if rows:
            self.change(connection, rows)
        return len(rows)

    def _newest_failure_in(self, connection: Connection, state: State) -> datetime | None:
        newest = select(func.max(letter.c.last_failed_at)).where(
            in_states([state]), *conditions(connection, self.wanted)
        )
        moment: datetime | None = connection.execute(newest).scalar_one()
        return moment

    def _write_chunk(
        self, transactions: Transactions, until: datetime, audit_id: int | None, size: int
    ) -> tuple[int, int | None]:
        chunk = partial(self.change_chunk, until=until, audit_id=audit_id, size=size)
        return transactions.write(chunk)

    def _next_rows(self, connection: Connection, until: datetime, size: int) -> Sequence[Row]:
        for state in sorted(self.sources):
            oldest = (
                select(*MEMBER)
                .where(in_states([state]), *conditions(connection, self.wanted))
                .where(letter.c.last_failed_at <= until)
                .order_by(letter.c.last_failed_at, letter.c.id)
                .limit(size)
                .with_for_update()
            )
            while locked := connection.execute(oldest).mappings().all():
                rows = without_claimed(connection, locked)
                if rows:
                    return rows
        return []
