"""The filters that people have saved under a name, for all who look at the store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, delete, func, insert, select
from sqlalchemy.engine import Connection

from celery_dlq.codec import dump_json
from celery_dlq.errors import FilterError
from celery_dlq.store.database import clock
from celery_dlq.store.database.tables import saved_filter
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.rows.audit import write_audit
from celery_dlq.store.rows.rows import fit, fit_text, read_row

#: The most saved filters, the most characters of a name, and of all values of one filter.
MOST, LONGEST_NAME, LONGEST = 100, 64, 4_000

#: The values of a filter, by the names of its fields.
Fields = Mapping[str, Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class SavedFilter:
    """A filter with a name."""

    name: str
    #: As they were given: a time may be relative, such as ``2h``.
    fields: Fields
    who: str
    at: datetime


class SavedFilters(StoreRole):
    """The saved filters."""

    @reads
    def read(self, connection: Connection) -> list[SavedFilter]:
        """All saved filters, by name."""
        in_order = select(saved_filter).order_by(saved_filter.c.name)
        rows = connection.execute(in_order).mappings()
        return [read_row(SavedFilter, row, fields=json.loads(row["fields"])) for row in rows]

    @writes
    def save(self, connection: Connection, name: str, fields: Fields, *, who: str) -> None:
        """Save a filter; audited. Nothing changes if it is already saved under this name.

        :raises FilterError: it has no field, the name or the values do not fit, another filter has the name,
            or too many are saved.
        """
        name = _checked(name, fields)
        values = {"name": name, "fields": dump_json(fields), "who": who}
        stored = connection.execute(
            select(saved_filter.c.fields).where(saved_filter.c.name == name)
        )
        there = stored.scalar_one_or_none()
        if there == values["fields"]:
            return
        if there is not None:
            raise FilterError(
                f"Another filter is saved as {name!r}; remove it, or use another name."
            )
        count = connection.execute(select(func.count()).select_from(saved_filter)).scalar_one()
        if count >= MOST:
            raise FilterError(f"{MOST} filters are saved already; remove one first.")
        now = clock.now(connection)
        connection.execute(insert(saved_filter).values(at=now, **fit(saved_filter, values)))
        detail = {"saved_as": name, "fields": fields}
        write_audit(connection, who=who, act="save-filter", count=0, at=now, detail=detail)

    @writes
    def remove(self, connection: Connection, name: str, fields: Fields, *, who: str) -> bool:
        """Remove a filter; audited. Returns whether it was there. Another one of this name, which was saved
        in the meantime, stays."""
        name, stored = fit_text(saved_filter.c.name, name), dump_json(fields)
        this = and_(saved_filter.c.name == name, saved_filter.c.fields == stored)
        removed = connection.execute(delete(saved_filter).where(this))
        if removed.rowcount:
            write_audit(
                connection, who=who, act="remove-filter", count=0, at=clock.now(connection),
                detail={"saved_as": name},
            )  # fmt: skip
        return bool(removed.rowcount)


def _checked(name: str, fields: Fields) -> str:
    name = " ".join(name.split())
    if not name:
        raise FilterError("The filter has no name; give it one.")
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise FilterError(f"A name has at most {LONGEST_NAME} characters, all of them visible.")
    if not fields:
        raise FilterError("The filter has no values; choose which letters to show, then save it.")
    if sum(len(value) for values in fields.values() for value in values) > LONGEST:
        raise FilterError(f"The filter has more than {LONGEST:,} characters; use fewer values.")
    return name
