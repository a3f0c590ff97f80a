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

import sqlalchemy as sa
from pybase64 import b64decode, b64encode_as_string
from sqlalchemy.engine import Connection

from celery_dlq.errors import ArchiveError, LeaseLost
from celery_dlq.model.letter import Envelope
from celery_dlq.model.states import CLOSED_STATES, State
from celery_dlq.settings import own
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
from celery_dlq.store.database.namespaces import is_ours, seen
from celery_dlq.store.database.sealing import CONTENTS, sealing_of
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
    read_row,
    replace_rows,
    without_secrets,
)
from celery_dlq.store.rows.tally import Member, Tally

#: A letter for JSON.
Line = Mapping[str, Any]

#: The tables whose rows belong to a letter by its task id, and their names in a line.
OF_LETTER: Mapping[str, sa.Table] = {
    "attempts": tables.attempt,
    "redrives": tables.sending,
    "changes": tables.change,
    "handlings": tables.handling,
    "held": tables.auto_hold,
}

#: Columns that have a meaning only in the store that wrote the line.
_LOCAL = frozenset({"id", "claim_token", "lease_expires_at", "salt"})


def plain(table: sa.Table, row: Row) -> dict[str, Any]:
    """The values of a row for JSON, without values that have no meaning elsewhere."""
    plain_row = {}
    for name, convert in _columns(table):
        value = row[name]
        plain_row[name] = value if convert is None or value is None else convert(value)
    return plain_row


@cache
def _columns(table: sa.Table) -> Sequence[tuple[str, Callable[[Any], str] | None]]:
    """The names of the columns, each with the function that makes its values plain."""
    return [
        (
            column.name,
            next((make for kind, make in _PLAIN.items() if isinstance(column.type, kind)), None),
        )
        for column in table.columns
        if column.name not in _LOCAL
    ]


def row_of(table: sa.Table, given: Mapping[str, Any]) -> dict[str, Any]:
    """The row that :func:`plain` was made of. Unknown values are left out."""
    return {
        column.name: _value(column, given.get(column.name))
        for column in table.columns
        if column.name not in _LOCAL
    }


def envelopes_of(line: Line) -> Iterator[Envelope]:
    """The message of the letter of a line, and its earlier forms, before each change. They are not encrypted:
    see :meth:`Archiving.opened`."""
    letter, message = row_of(tables.letter, line["letter"]), row_of(tables.content, line["content"])
    yield envelope_from({**letter, **message})
    for change in line.get("changes", ()):
        yield envelope_from(row_of(tables.change, change))


def _value(column: sa.Column[Any], given: Any) -> Any:
    if given is None:
        if column.nullable:
            return None
        return next(empty for kind, empty in _EMPTY.items() if isinstance(column.type, kind))
    if isinstance(column.type, Moment):
        return datetime.fromisoformat(given).astimezone(timezone.utc)
    return b64decode(given) if isinstance(column.type, sa.LargeBinary) else given


_PLAIN: Mapping[type[Any], Callable[[Any], str]] = {
    Moment: datetime.isoformat,
    sa.LargeBinary: b64encode_as_string,
}

#: The value of a column that an older line does not have.
_EMPTY: Mapping[type[Any], Any] = {
    sa.Text: "", sa.String: "", sa.LargeBinary: b"", sa.Boolean: False, sa.Integer: 0,
    Moment: datetime(1970, 1, 1, tzinfo=timezone.utc),
}  # fmt: skip


#: The rows of a table by task id.
_ByLetter = dict[str, list[dict[str, Any]]]

#: Whether the letters of a segment are in the archive.
_COUNTS = segment.c.state != SegmentState.LEFTOVER.value


def totals_of(connection: Connection) -> ArchiveTotals:
    """The letters in the archive."""
    added = sa.select(
        sa.func.count(), sa.func.coalesce(sa.func.sum(segment.c.letters), 0),
        sa.func.coalesce(sa.func.sum(segment.c.size), 0), sa.func.max(segment.c.archived_at),
    ).where(is_ours(connection, segment), _COUNTS)  # fmt: skip
    segments, letters, size, last_at = connection.execute(added).one()
    return ArchiveTotals(segments=segments, letters=int(letters), size=int(size), last_at=last_at)


class Archiving(StoreRole):
    """The segments of the archive, and the letters that go into them and come back."""

    @reads
    def segments(self) -> list[Segment]:
        """All segments, also leftovers, in the order in which they were archived."""
        stored = sa.select(segment).where(self.ours(segment)).order_by(segment.c.id)
        return [read_row(Segment, row) for row in self.connection.execute(stored).mappings()]

    @reads
    def newest(self) -> str:
        """The id of the segment that was archived last; empty without segments."""
        ours = sa.select(sa.func.max(segment.c.id)).where(self.ours(segment), _COUNTS)
        return self.connection.scalar(ours) or ""

    @reads
    def totals(self) -> ArchiveTotals:
        """The letters in the archive."""
        return totals_of(self.connection)

    @writes
    def begin(self, facts: Facts, lease: Lease, place: Segment | None = None) -> Segment:
        """A new segment, which is a leftover until its file is committed.

        :param place: the segment that it will replace; otherwise it is the last one.
        :raises LeaseLost: another process has taken the lease.
        """
        check_lease(self.connection, lease)
        newest = self.connection.scalar(sa.select(sa.func.max(segment.c.archived_at)))
        at = clock.now(self.connection)
        if place is not None:
            at = place.archived_at
        elif newest is not None:
            # So that it comes after all others.
            at = max(at, newest + timedelta(microseconds=1))
        made = Segment(
            **vars(facts), id=f"{at:%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}",
            state=SegmentState.LEFTOVER, archived_at=at,
        )  # fmt: skip
        row = {**vars(made), "state": made.state.value}
        self.connection.execute(sa.insert(segment).values(row))
        return made

    @writes
    def commit(
        self, made: Segment, keys: Sequence[LetterKey], lease: Lease, act: OngoingAct
    ) -> tuple[int, OngoingAct]:
        """Let a segment count whose file is in the archive, and delete its letters; audited. Letters that
        have changed since they were read stay. Returns how many were deleted, and the act for the next ones.

        :raises LeaseLost: another process has taken the lease.
        """
        deleted, act = delete_closed(self.connection, keys, lease, act)
        _set_state(self.connection, made, SegmentState.OWN)
        return deleted, act

    @writes
    def replace(self, before: Segment, after: Segment | None, lease: Lease) -> None:
        """Let the segment ``after``, whose file is in the archive, count instead of ``before``.

        :raises LeaseLost: another process has taken the lease.
        """
        check_lease(self.connection, lease)
        _set_state(self.connection, before, SegmentState.LEFTOVER)
        if after is not None:
            _set_state(self.connection, after, before.state)

    @writes
    def adopt(self, segment_id: str, facts: Facts, at: datetime) -> None:
        """Let the file of another store count.

        :param at: when it was made.
        """
        adopted = {"id": segment_id, "archived_at": at, "state": SegmentState.ADOPTED.value}
        self.connection.execute(sa.insert(segment).values({**vars(facts), **adopted}))

    @writes
    def leftovers(self, lease: Lease) -> list[str]:
        """The ids of the segments that do not count. No process will commit such a segment, because its
        process lost the lease before this process got it.

        :raises LeaseLost: another process has taken the lease.
        """
        check_lease(self.connection, lease)
        found = sa.select(segment.c.id).where(self.ours(segment), ~_COUNTS).order_by(segment.c.id)
        return [*self.connection.scalars(found)]

    @writes
    def drop(self, segment_id: str) -> None:
        """Delete the row of a leftover, whose file is deleted."""
        self.connection.execute(sa.delete(segment).where(segment.c.id == segment_id, ~_COUNTS))

    def read(
        self, task_ids: Sequence[str], states: Collection[State] = CLOSED_STATES
    ) -> Iterator[Line]:
        """The lines of letters, in the order of the ids, without letters that are gone or in another state
        than ``states``. Only as many letters are in memory as have
        :data:`~celery_dlq.store.rows.bodies.TOGETHER` bytes of bodies."""
        left = list(task_ids)
        while left:
            lines, count = self._read(left, states)
            yield from lines
            left = left[count:]

    @reads
    def _read(
        self, task_ids: Sequence[str], states: Collection[State]
    ) -> tuple[Sequence[Line], int]:
        """The lines of the first of these letters, and how many ids those are."""
        give_time_for_bodies(self.connection, len(task_ids))
        is_one = one_of(self.connection, letter.c.task_id, task_ids)
        its = is_one, in_states(states), self.ours(letter)
        stored = self.connection.execute(WHOLE.where(*its)).mappings()
        rows, count = first_with_bodies(self.connection, task_ids, stored)
        known = [row["task_id"] for row in rows]
        others = {
            name: _rows_of(self.connection, table, known)
            for name, table in (*OF_LETTER.items(), ("audit", tables.audit))
        }
        lines = [
            {
                "format": LINE_FORMAT, "schema": schema.HEAD,
                "letter": plain(letter, row), "content": plain(tables.content, row),
                **{name: found.get(row["task_id"], []) for name, found in others.items()},
            }
            for row in rows
        ]  # fmt: skip
        return lines, count

    def opened(self, line: Line) -> Line:
        """The line, with its contents decrypted.

        :raises ContentsSealed: they cannot be.
        """
        # The changes of a letter in clear may have a value that is marked as clear.
        is_plain = not (line["letter"].get("sealed_by") or line.get("changes"))
        return line if is_plain else self._opened(line)

    @reads
    def _opened(self, line: Line) -> Line:
        sealing = sealing_of(self.connection)
        row = {**row_of(tables.letter, line["letter"]), **row_of(tables.content, line["content"])}
        whole = sealing.open(letter, row)
        others = {
            name: [
                {**item, **plain(table, sealing.open(table, row_of(table, item)))}
                for item in line.get(name, ())
            ]
            for name, table in (*OF_LETTER.items(), ("audit", tables.audit))
            if table in CONTENTS
        }
        parts = {"letter": plain(tables.letter, whole), "content": plain(tables.content, whole)}
        return {**line, **parts, **others}

    @writes
    def restore(
        self, lines: Sequence[Line], *, who: str, reopen: bool, origin: str, now: datetime
    ) -> Restored:
        """Make letters of lines; audited. A letter that the store has stays as it is. A redrive of a letter
        comes back if the store has its operation.

        :param reopen: whether they come back as dead letters.
        :param origin: the id of their segment. Letters of another store have not arrived in this one before.
        :raises ContentsSealed: a letter cannot be decrypted.
        """
        by_id = {line["letter"]["task_id"]: line for line in lines}
        here = own(seen(self.connection))
        if any(line["letter"].get("namespace", "") != here for line in lines):
            raise ArchiveError(
                "Letters of another namespace are restored by an app with that dlq_namespace."
            )
        living = _known(self.connection, by_id)
        back = {key: line for key, line in sorted(by_id.items()) if key not in living}
        if back:
            searched, sealing = self._transactions.searched, sealing_of(self.connection)
            rows = [
                without_secrets(sealing.open(letter, row), searched.redactor.stored)
                for line in back.values()
                for row in [_letter_row(line, reopen=reopen, origin=origin, now=now)]
            ]
            for row in rows:
                if not row["sealed_by"].startswith("@"):
                    row["sealed_by"] = sealing.label_for("")
            # A letter may have been redriven after an earlier restore, and then deleted.
            count_on(self.connection, rows)
            insert_letters(self.connection, rows, searched.value_limit)
            for name, table in OF_LETTER.items():
                items = [item for line in back.values() for item in line.get(name, ())]
                _put_back(self.connection, table, items)
            _count(self.connection, rows, origin)
            # Their groups may have been merged since then.
            groups = sorted({row["fingerprint"] for row in rows})
            in_these = one_of(self.connection, tables.group.c.fingerprint, groups)
            aliases.mark(self.connection, in_these, aliases.HAS_ALIAS)
            named = {"letter": next(iter(back))} if len(back) == 1 else {}
            audit.write_audit(
                self.connection, who=who, act="restore", count=len(back), at=now,
                detail={"segment": origin, "reopened": reopen, **named},
            )  # fmt: skip
        return Restored(restored=tuple(back), living=tuple(sorted(living)))


def _set_state(connection: Connection, one: Segment, state: SegmentState) -> None:
    moved = sa.update(segment).where(segment.c.id == one.id, segment.c.state == one.state.value)
    if not connection.execute(moved.values(state=state.value)).rowcount:
        raise LeaseLost(f"Another process has ended segment {one.id}; nothing was changed.")


def _rows_of(connection: Connection, table: Any, task_ids: Sequence[str]) -> _ByLetter:
    """The rows of a table that belong to these letters."""
    if not task_ids:
        return {}
    key = table.c.subject if table is tables.audit else table.c.task_id
    stored = sa.select(table).where(one_of(connection, key, list(task_ids)))
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
        stored = sa.select(table.c.task_id).where(one_of(connection, table.c.task_id, wanted))
        found |= set(connection.scalars(stored))
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


def _put_back(
    connection: Connection,
    table: Any,
    given: Collection[Mapping[str, Any]],
) -> None:
    """Write the rows of letters that are back."""
    rows, sealing = [row_of(table, item) for item in given], sealing_of(connection)
    if table in CONTENTS:
        opened = [fit(table, sealing.open(table, row)) for row in rows]
        rows = sealing.seal_for_letters(table, opened)
    else:
        rows = [fit(table, row) for row in rows]
    if table is sending:
        named = sorted({row["operation"] for row in rows})
        stored = sa.select(operation.c.id).where(one_of(connection, operation.c.id, named))
        known = set(connection.scalars(stored)) if named else set()
        rows = [row for row in rows if row["operation"] in known]
    if rows and table is sending:
        # Only the texts of redrives that stayed when their letters were deleted.
        replace_rows(connection, sending, rows, ("why", "change"))
    elif rows:
        connection.execute(sa.insert(table), rows)


def _count(connection: Connection, rows: Sequence[Row], segment_id: str) -> None:
    """Count the letters of a segment. Those of another store have not arrived in this one before."""
    state = connection.scalar(sa.select(segment.c.state).where(segment.c.id == segment_id))
    is_own, tally = state == SegmentState.OWN.value, Tally()
    for row in rows:
        if is_own:
            tally.enter(Member.of(row))
        else:
            tally.arrive(None, Member.of(row))
    tally.write(connection)
