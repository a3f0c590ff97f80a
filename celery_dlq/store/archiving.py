"""The store's side of the archive: takes letters out as lines, brings them back, and has a row for each
segment. ``celery_dlq/archive/`` has the files.

A line is a letter with everything that belongs to it, as one value for JSON. It has the columns of the tables
by name. An older line lacks the columns that were added later; these get their defaults.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Any

from pybase64 import b64decode, b64encode_as_string
from sqlalchemy import (
    Boolean,
    Column,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.engine import Connection

from celery_dlq.errors import LeaseLost
from celery_dlq.model.letter import Envelope
from celery_dlq.model.states import CLOSED_STATES, State
from celery_dlq.store.base import (
    LINE_FORMAT,
    Facts,
    Lease,
    LetterKey,
    OngoingAct,
    Restored,
    Segment,
    SegmentState,
)
from celery_dlq.store.coordination import check_lease
from celery_dlq.store.database import clock, schema, tables
from celery_dlq.store.database.columns import Moment
from celery_dlq.store.database.tables import letter, operation, segment, sending
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.groups import aliases
from celery_dlq.store.keeping import ArchiveTotals
from celery_dlq.store.letters.acts import delete_closed
from celery_dlq.store.letters.save import count_on, insert_letters
from celery_dlq.store.rows import audit
from celery_dlq.store.rows.bodies import first_with_bodies, give_time_for_bodies
from celery_dlq.store.rows.query import WHOLE, in_states, one_of
from celery_dlq.store.rows.rows import (
    Row,
    envelope_from,
    fit,
    fit_text,
    replace_rows,
    without_secrets,
)
from celery_dlq.store.rows.tally import Member, Tally

#: A letter for JSON.
Line = Mapping[str, Any]

#: The tables whose rows belong to a letter by its task id, and their names in a line.
OF_LETTER: Mapping[str, Table] = {
    "attempts": tables.attempt,
    "redrives": tables.sending,
    "changes": tables.change,
    "handlings": tables.handling,
    "held": tables.held,
}

#: Columns that have a meaning only in the store that wrote the line.
_LOCAL = frozenset({"id", "claim_token", "lease_expires_at"})


def line_of(letter: Row, others: Mapping[str, list[dict[str, Any]]]) -> Line:
    """The line of a letter.

    :param letter: its row, with its contents.
    :param others: the rows of the tables in :data:`OF_LETTER` by their names there, and those of the audit.
    """
    return {
        "format": LINE_FORMAT,
        "schema": schema.HEAD,
        "letter": plain(tables.letter, letter),
        "content": plain(tables.content, letter),
        **others,
    }


def plain(table: Table, row: Row) -> dict[str, Any]:
    """The values of a row for JSON, without those that have no meaning elsewhere."""
    plain_row = {}
    for name, convert in _columns(table):
        value = row[name]
        plain_row[name] = value if convert is None or value is None else convert(value)
    return plain_row


@cache
def _columns(table: Table) -> Sequence[tuple[str, Callable[[Any], str] | None]]:
    """The names of the columns, each with the function that makes its values plain."""
    return [
        (
            column.name,
            next((make for kind, make in _PLAIN.items() if isinstance(column.type, kind)), None),
        )
        for column in table.columns
        if column.name not in _LOCAL
    ]


def row_of(table: Table, given: Mapping[str, Any]) -> dict[str, Any]:
    """The row that :func:`plain` was made of. Unknown values are left out."""
    return {
        column.name: _value(column, given.get(column.name))
        for column in table.columns
        if column.name not in _LOCAL
    }


def envelopes_of(line: Line) -> Iterator[Envelope]:
    """The message of the letter of a line, and its earlier forms, before each change."""
    letter, message = row_of(tables.letter, line["letter"]), row_of(tables.content, line["content"])
    yield envelope_from({**letter, **message})
    for change in line.get("changes", ()):
        yield envelope_from(row_of(tables.change, change))


def _value(column: Column[Any], given: Any) -> Any:
    if given is None:
        if column.nullable:
            return None
        return next(empty for kind, empty in _EMPTY.items() if isinstance(column.type, kind))
    if isinstance(column.type, Moment):
        return datetime.fromisoformat(given).astimezone(timezone.utc)
    return b64decode(given) if isinstance(column.type, LargeBinary) else given


_PLAIN: Mapping[type[Any], Callable[[Any], str]] = {
    Moment: datetime.isoformat,
    LargeBinary: b64encode_as_string,
}

#: The value of a column that an older line does not have.
_EMPTY: Mapping[type[Any], Any] = {
    Text: "", String: "", LargeBinary: b"", Boolean: False, Integer: 0,
    Moment: datetime(1970, 1, 1, tzinfo=timezone.utc),
}  # fmt: skip


#: The rows of a table by task id.
_ByLetter = dict[str, list[dict[str, Any]]]

#: Whether the letters of a segment are in the archive.
_COUNTS = segment.c.state != SegmentState.LEFTOVER.value


class Archiving(StoreRole):
    """The segments of the archive, and the letters that go into them and come back."""

    @reads
    def segments(self, connection: Connection) -> list[Segment]:
        """All segments, also leftovers, in the order in which they were archived."""
        stored = connection.execute(select(segment).order_by(segment.c.id)).mappings()
        return [Segment(**{**row, "state": SegmentState(row["state"])}) for row in stored]

    @reads
    def newest(self, connection: Connection) -> str:
        """The id of the segment that was archived last; empty without segments."""
        return connection.execute(select(func.max(segment.c.id)).where(_COUNTS)).scalar_one() or ""

    @reads
    def totals(self, connection: Connection) -> ArchiveTotals:
        """The letters in the archive."""
        return totals_of(connection)

    @writes
    def begin(
        self, connection: Connection, facts: Facts, lease: Lease, place: Segment | None = None
    ) -> Segment:
        """A new segment, which is a leftover until its file is committed.

        :param place: the segment that it will replace; otherwise it is the last one.
        :raises LeaseLost: another process has taken the lease.
        """
        check_lease(connection, lease)
        at = _next_moment(connection) if place is None else place.archived_at
        made = Segment(
            **vars(facts), id=f"{at:%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}",
            state=SegmentState.LEFTOVER, archived_at=at,
        )  # fmt: skip
        connection.execute(insert(segment).values({**vars(made), "state": made.state.value}))
        return made

    @writes
    def commit(
        self,
        connection: Connection,
        made: Segment,
        keys: Sequence[LetterKey],
        lease: Lease,
        act: OngoingAct,
    ) -> tuple[int, OngoingAct]:
        """Let a segment count whose file is in the archive, and delete its letters; audited. Letters that
        have changed since they were read stay. Returns how many were deleted, and the act for the next ones.

        :raises LeaseLost: another process has taken the lease.
        """
        deleted, act = delete_closed(connection, keys, lease, act)
        _set_state(connection, made, SegmentState.OWN)
        return deleted, act

    @writes
    def replace(
        self, connection: Connection, before: Segment, after: Segment | None, lease: Lease
    ) -> None:
        """Let the segment ``after``, whose file is in the archive, count instead of ``before``.

        :raises LeaseLost: another process has taken the lease.
        """
        check_lease(connection, lease)
        _set_state(connection, before, SegmentState.LEFTOVER)
        if after is not None:
            _set_state(connection, after, before.state)

    @writes
    def adopt(self, connection: Connection, segment_id: str, facts: Facts, at: datetime) -> None:
        """Let the file of another store count.

        :param at: when it was made.
        """
        row = {
            **vars(facts),
            "id": segment_id,
            "archived_at": at,
            "state": SegmentState.ADOPTED.value,
        }
        connection.execute(insert(segment).values(row))

    @writes
    def leftovers(self, connection: Connection, lease: Lease) -> list[str]:
        """The ids of the segments that do not count. No process will commit them, because each lost the lease
        before this one got it.

        :raises LeaseLost: another process has taken the lease.
        """
        check_lease(connection, lease)
        found = select(segment.c.id).where(~_COUNTS).order_by(segment.c.id)
        return [*connection.execute(found).scalars()]

    @writes
    def drop(self, connection: Connection, segment_id: str) -> None:
        """Delete the row of a leftover, whose file is deleted."""
        connection.execute(delete(segment).where(segment.c.id == segment_id, ~_COUNTS))

    def read(
        self, task_ids: Sequence[str], states: Collection[State] = CLOSED_STATES
    ) -> Iterator[Line]:
        """The lines of letters, in the order of the ids; without those that are gone or in none of
        ``states``. Only as many letters are in memory as have
        :data:`~celery_dlq.store.rows.bodies.TOGETHER` bytes of bodies."""
        left = list(task_ids)
        while left:
            lines, count = self._read(left, states)
            yield from lines
            left = left[count:]

    @reads
    def _read(
        self, connection: Connection, task_ids: Sequence[str], states: Collection[State]
    ) -> tuple[list[Line], int]:
        """The lines of the first of these letters, and how many ids those are."""
        give_time_for_bodies(connection, len(task_ids))
        is_one = one_of(connection, letter.c.task_id, task_ids)
        stored = connection.execute(WHOLE.where(is_one, in_states(states))).mappings()
        rows, count = first_with_bodies(connection, task_ids, stored)
        known = [row["task_id"] for row in rows]
        others = {
            name: _rows_of(connection, table, known)
            for name, table in (*OF_LETTER.items(), ("audit", tables.audit))
        }
        lines = [
            line_of(row, {name: found.get(row["task_id"], []) for name, found in others.items()})
            for row in rows
        ]
        return lines, count

    @writes
    def delete(
        self, connection: Connection, keys: Sequence[LetterKey], lease: Lease, act: OngoingAct
    ) -> tuple[int, OngoingAct]:
        """Delete those letters that are still closed and have the same times; audited. Returns their number,
        and the act for the next letters.

        :raises LeaseLost: another process has taken the lease.
        """
        return delete_closed(connection, keys, lease, act)

    @writes
    def restore(
        self,
        connection: Connection,
        lines: Sequence[Line],
        *,
        who: str,
        reopen: bool,
        origin: str,
        now: datetime,
    ) -> Restored:
        """Make letters of lines; audited. A letter that the store has stays as it is. Of a letter's redrives,
        those of operations that the store has come back.

        :param reopen: whether they come back as dead letters.
        :param origin: the id of their segment. Letters of another store have not arrived in this one before.
        """
        by_id = {line["letter"]["task_id"]: line for line in lines}
        living = _known(connection, by_id)
        back = {key: line for key, line in sorted(by_id.items()) if key not in living}
        if back:
            stored = self._transactions.searched.redactor.stored
            rows = [
                without_secrets(_letter_row(line, reopen=reopen, origin=origin, now=now), stored)
                for line in back.values()
            ]
            # A letter may have been redriven after an earlier restore, and then deleted.
            count_on(connection, rows)
            insert_letters(connection, rows, self._transactions.searched.value_limit)
            for name, table in OF_LETTER.items():
                _put_back(
                    connection,
                    table,
                    [item for line in back.values() for item in line.get(name, ())],
                )
            _count(connection, rows, is_own=_is_own(connection, origin))
            # Their groups may have been merged since then.
            aliases.mark_merged(connection, {row["fingerprint"] for row in rows})
            named = {"letter": next(iter(back))} if len(back) == 1 else {}
            audit.write_audit(
                connection, who=who, act="restore", count=len(back), at=now,
                detail={"segment": origin, "reopened": reopen, **named},
            )  # fmt: skip
        return Restored(restored=tuple(back), living=tuple(sorted(living)))


def totals_of(connection: Connection) -> ArchiveTotals:
    """The letters in the archive."""
    added = select(
        func.count(), func.coalesce(func.sum(segment.c.letters), 0),
        func.coalesce(func.sum(segment.c.size), 0), func.max(segment.c.archived_at),
    ).where(_COUNTS)  # fmt: skip
    segments, letters, size, last_at = connection.execute(added).one()
    return ArchiveTotals(segments=segments, letters=int(letters), size=int(size), last_at=last_at)


def _next_moment(connection: Connection) -> datetime:
    """The current time, or a later one, so that it is after that of all segments."""
    newest = connection.execute(select(func.max(segment.c.archived_at))).scalar_one()
    now = clock.now(connection)
    return now if newest is None else max(now, newest + timedelta(microseconds=1))


def _set_state(connection: Connection, one: Segment, state: SegmentState) -> None:
    moved = update(segment).where(segment.c.id == one.id, segment.c.state == one.state.value)
    if not connection.execute(moved.values(state=state.value)).rowcount:
        raise LeaseLost(f"Another process has ended segment {one.id}; nothing was changed.")


def _is_own(connection: Connection, segment_id: str) -> bool:
    state = select(segment.c.state).where(segment.c.id == segment_id)
    return connection.execute(state).scalar_one_or_none() == SegmentState.OWN.value


def _rows_of(connection: Connection, table: Any, task_ids: Sequence[str]) -> _ByLetter:
    """The rows of a table that belong to these letters."""
    if not task_ids:
        return {}
    key = table.c.subject if table is tables.audit else table.c.task_id
    stored = select(table).where(one_of(connection, key, list(task_ids)))
    found: _ByLetter = {}
    for row in connection.execute(stored.order_by(*table.primary_key)).mappings():
        found.setdefault(row[key.name], []).append(plain(table, row))
    return found


def _known(connection: Connection, task_ids: Iterable[str]) -> set[str]:
    """The ids that have a letter or a parked retry in the store. If another process adds one of them before
    this transaction ends, one of the two transactions is begun again."""
    wanted = sorted(task_ids)
    found: set[str] = set()
    for table in (letter, tables.parked):
        stored = select(table.c.task_id).where(one_of(connection, table.c.task_id, wanted))
        found |= set(connection.execute(stored).scalars())
    return found


def _letter_row(line: Line, *, reopen: bool, origin: str, now: datetime) -> dict[str, Any]:
    row = {**row_of(tables.letter, line["letter"]), **row_of(tables.content, line["content"])}
    row |= {"claim_token": None, "lease_expires_at": None}
    if reopen:
        row |= {"state": State.DEAD.value, "closed_at": None, "closed_by": "", "closed_reason": ""}
    else:
        # A new time, because the letter is kept as long again from now on.
        closed = f"closed {row['closed_at']:%Y-%m-%d %H:%M} UTC, restored from segment {origin}"
        said = f"{row['closed_reason']} ({closed})".lstrip()
        row |= {"closed_at": now, "closed_reason": fit_text(letter.c.closed_reason, said)}
    return row


def _put_back(connection: Connection, table: Any, given: Collection[Mapping[str, Any]]) -> None:
    rows = [fit(table, row_of(table, item)) for item in given]
    if table is sending:
        _put_sendings_back(connection, rows)
    elif rows:
        connection.execute(insert(table), rows)


def _put_sendings_back(connection: Connection, rows: list[dict[str, Any]]) -> None:
    """Write the redrives again, or only the texts of those that stayed when their letters were deleted."""
    named = sorted({row["operation"] for row in rows})
    stored = select(operation.c.id).where(operation.c.id.in_(named)) if named else None
    known = set() if stored is None else set(connection.execute(stored).scalars())
    kept = [row for row in rows if row["operation"] in known]
    if kept:
        replace_rows(connection, sending, kept, ("why", "change"))


def _count(connection: Connection, rows: Sequence[Row], *, is_own: bool) -> None:
    """Count the letters. Those of another store have not arrived in this one before."""
    tally = Tally()
    for row in rows:
        if is_own:
            tally.enter(Member.of(row))
        else:
            tally.arrive(None, Member.of(row))
    tally.write(connection)
