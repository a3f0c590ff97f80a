"""Adds the values of letters that were stored before values were kept, a few letters at a time, the newest
first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from celery_dlq.store.base import ValuesKept
from celery_dlq.store.database import clock
from celery_dlq.store.database.tables import content, letter, report, term
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.rows.audit import write_reports
from celery_dlq.store.rows.query import OF_LETTER, one_of
from celery_dlq.store.rows.rows import without_secrets
from celery_dlq.store.rows.terms import add_terms

#: The name of the row that says how far this has come.
_NAME = "values"


class Values(StoreRole):
    """The values of letters, as a whole."""

    @reads
    def kept(self, connection: Connection) -> ValuesKept:
        """Which letters can be found by their values."""
        if not self._transactions.searched.value_limit:
            return ValuesKept(are_kept=False, since=None)
        below = _read(connection)
        if below is None:
            below = _above_all(connection)
        oldest = select(letter.c.first_failed_at).where(letter.c.id < below)
        newest = oldest.order_by(letter.c.id.desc()).limit(1)
        return ValuesKept(are_kept=True, since=connection.execute(newest).scalar_one_or_none())

    @writes
    def add(self, connection: Connection, *, letters: int) -> bool:
        """Add the values of the next letters that lack them; whether there may be more. Only one process at a
        time does this. If values are not kept, note only that from now on letters lack them.

        :param letters: the most letters to look at.
        """
        limit, redactor = self._transactions.searched
        below = _read(connection, is_locked=True)
        if not limit:
            if below is not None:
                _write(connection, None)
            return False
        if below is None:
            # Letters that come from now on have values.
            below = _above_all(connection)
        if not below:
            return False
        rows = _next(connection, below, letters)
        lacking = _without_values(connection, rows)
        shown = ((number, without_secrets(row, redactor.stored)) for number, row in lacking)
        add_terms(connection, shown, limit)
        _write(connection, min(rows, default=0))
        return bool(rows)


def _next(connection: Connection, below: int, letters: int) -> dict[int, Mapping[str, Any]]:
    """The next letters by their ids, locked: they neither fail again nor go in the meantime."""
    ids = select(letter.c.id).where(letter.c.id < below).order_by(letter.c.id.desc()).limit(letters)
    locked = connection.execute(ids.with_for_update()).scalars().all()
    columns = letter.c.id, letter.c.message, content.c.args, content.c.kwargs
    these = select(*columns).join(content, OF_LETTER).where(one_of(connection, letter.c.id, locked))
    return {row["id"]: dict(row) for row in connection.execute(these).mappings()}


def _without_values(
    connection: Connection, rows: Mapping[int, Mapping[str, Any]]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    these = select(term.c.letter).where(one_of(connection, term.c.letter, sorted(rows))).distinct()
    known = set(connection.execute(these).scalars()) if rows else set()
    return ((number, row) for number, row in rows.items() if number not in known)


def _above_all(connection: Connection) -> int:
    return int(connection.execute(select(func.coalesce(func.max(letter.c.id), 0) + 1)).scalar_one())


def _read(connection: Connection, *, is_locked: bool = False) -> int | None:
    """The letters with this number and higher ones have their values. None if that is not known."""
    row = select(report.c.detail).where(report.c.name == _NAME)
    detail = connection.execute(row.with_for_update() if is_locked else row).scalar_one_or_none()
    return None if detail is None else json.loads(detail)["below"]


def _write(connection: Connection, below: int | None) -> None:
    write_reports(connection, {_NAME: {"below": below}}, clock.now(connection))
