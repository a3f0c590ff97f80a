"""Keys of encryption: which letters are sealed with which key, and the rotation to the first key of the
ring.

A rotation passes over every table with contents, row after row, and over the letters last. A letter names
the new key only when nothing that belongs to it needs the old one. So a rotation that was killed is begun
again, and nothing is lost.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from celery_dlq.errors import ContentsSealed
from celery_dlq.store.base import Pause, Pauses
from celery_dlq.store.database import chain, clock
from celery_dlq.store.database.namespaces import narrow, seen
from celery_dlq.store.database.sealing import CONTENTS, OWNERS, sealing_of
from celery_dlq.store.database.tables import audit, content, key, letter
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.rows.audit import write_audit
from celery_dlq.store.rows.query import OF_LETTER, is_after
from celery_dlq.store.rows.rows import Row
from celery_dlq.store.rows.terms import replace_terms

#: Rows that are sealed again in one transaction. A worker that writes to one of them waits for its end.
TOGETHER = 100

#: The label of letters that are sealed with keys of persons.
OF_PERSONS = "@"

#: The tables with contents, without those of letters and of keys.
_OTHERS = tuple(table for table in CONTENTS if table not in (letter, content, key))

_IS_PERSONS = letter.c.sealed_by.startswith(OF_PERSONS)


class Keys(StoreRole):
    """The keys with which the contents of letters are sealed."""

    @reads
    def counts(self) -> dict[str, tuple[int, int]]:
        """Letters, and keys of persons and of hashes, by the label of the key that seals them. The label is
        empty for letters that are not sealed, and :data:`OF_PERSONS` for those with the keys of persons. All
        namespaces are counted, because they have one ring."""
        of_persons = sa.select(sa.literal(OF_PERSONS), sa.func.count()).where(_IS_PERSONS)
        others = _by_label(letter).where(~_IS_PERSONS)
        letters = _counted(self.connection, sa.union_all(others, of_persons))
        keys = _counted(self.connection, _by_label(key))
        return {label: (letters[label], keys[label]) for label in letters | keys}

    def left(self) -> int:
        """Letters and keys that are not sealed with the first key of the ring."""
        done = {self._label, OF_PERSONS}
        return sum(sum(counts) for label, counts in self.counts().items() if label not in done)

    @reads
    def person_id(self, subject: str) -> str:
        """The id of the person that ``dlq_subject`` calls ``subject``; empty if no person has a key."""
        sealing = sealing_of(self.connection)
        return sealing.person_id(subject) if sealing.hash_key else ""

    @reads
    def has_person(self, person_id: str) -> bool:
        """Whether the person with this id has a key."""
        its = sa.select(key.c.id).where(key.c.id == person_id)
        return self.connection.execute(its).first() is not None

    @writes
    def destroy(self, person_id: str) -> bool:
        """Destroy the key of a person; returns whether there was one. Nothing that it sealed can be read."""
        return self.connection.execute(sa.delete(key).where(key.c.id == person_id)).rowcount > 0

    def rotate(
        self,
        *,
        who: str,
        on_progress: Callable[[int], object] = lambda _rows: None,
        pause: Pause = time.sleep,
    ) -> int:
        """Seal everything with the first key of the ring that is not sealed with it; returns how many rows
        were, and audits it. Values that a person's key has sealed stay, and the person's key is sealed again.
        What cannot be read, because its key is missing or it was changed, stays as it is.

        :param on_progress: called with the number of rows so far, after each transaction.
        :param pause: is called then, so that workers come first.
        :raises ContentsSealed: there is no ring.
        """
        rows, detail, pauses = 0, {"key": self._label}, Pauses(pause)
        for table in (key, *_OTHERS, letter):
            after: Sequence[Any] | None = ()
            while after is not None:
                done, after = self._seal_rows(table, after)
                rows += done
                on_progress(rows)
                pauses.rest()
        if rows:
            self._note(rows, who, detail)
        return rows

    @writes
    def _seal_rows(self, table: sa.Table, after: Sequence[Any]) -> tuple[int, Sequence[Any] | None]:
        """Seal the next rows of ``table``; returns how many were changed, and the key of the last one, or
        None at the end of the table."""
        order = [*table.primary_key.columns]
        following = self._following(table).order_by(*order).limit(TOGETHER)
        if after:
            following = following.where(is_after(order, after))
        if after and table is letter:
            # PostgreSQL would read the contents from the first one on.
            following = following.where(content.c.id >= after[0])
        rows = self.connection.execute(following.with_for_update()).mappings().all()
        again = [new for row in rows if (new := self._sealed_again(table, row)) is not None]
        for part in (letter, content) if table is letter else (table,):
            self._write(part, again)
        if table is audit:
            chain.note(self.connection, [row["id"] for row in again])
        clear = [(row["id"], {**row}) for row in rows if row.get("sealed_by") == ""]
        if clear:  # their values were hashed without the store's key
            replace_terms(self.connection, clear, self._transactions.searched.value_limit)
        last = [rows[-1][column.name] for column in order] if len(rows) == TOGETHER else None
        return len(again), last

    def _following(self, table: sa.Table) -> sa.Select[Any]:
        """The rows of ``table`` that may have to be sealed again, with all that this needs."""
        names = {*table.primary_key.columns.keys(), *OWNERS[table], *CONTENTS[table], "sealed_by"}
        columns = [column for column in table.columns if column.name in names]
        if table is not letter:
            return sa.select(*columns)
        # Also those with the new label: a worker whose first key is the old one may have written to them.
        contents = (content.c[name] for name in CONTENTS[content])
        return sa.select(*columns, *contents).join(content, OF_LETTER).where(~_IS_PERSONS)

    def _sealed_again(self, table: sa.Table, row: Row) -> dict[str, Any] | None:
        """The row, sealed with the first key; None if it is, or if it cannot be read."""
        try:
            again = sealing_of(self.connection).seal_again(table, row)
        except ContentsSealed:
            return None
        return None if again == row else again

    def _write(self, table: sa.Table, rows: Sequence[Row]) -> None:
        names = [name for name in ("sealed_by", *CONTENTS[table]) if name in table.c]
        keys = [*table.primary_key.columns]
        change = (
            sa.update(table)
            .where(*(column == sa.bindparam(f"of_{column.name}") for column in keys))
            .values({name: sa.bindparam(f"new_{name}") for name in names})
        )
        if rows:
            values = [
                {f"of_{one.name}": row[one.name] for one in keys}
                | {f"new_{name}": row[name] for name in names}
                for row in rows
            ]
            self.connection.execute(change, values)

    @writes
    def _note(self, rows: int, who: str, detail: Mapping[str, str]) -> None:
        narrow(self.connection, seen(self.connection)[0])  # one row for the work on all namespaces
        write_audit(
            self.connection, who=who, act="rotate", count=rows, at=clock.now(self.connection),
            detail=detail,
        )  # fmt: skip

    @property
    def _label(self) -> str:
        ring = self._transactions.ring
        if ring is None:
            raise ContentsSealed("There is no key to encrypt with; set dlq_encryption_keys.")
        return ring.label


def _counted(connection: Connection, counts: sa.Executable) -> Counter[str]:
    return +Counter(dict(map(tuple, connection.execute(counts))))


def _by_label(table: Any) -> sa.Select[Any]:
    return sa.select(table.c.sealed_by, sa.func.count()).group_by(table.c.sealed_by)
