"""The account of the archive's segments: which are begun, committed and closed."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import func, insert, select, update
from sqlalchemy.engine import Connection

from celery_dlq.errors import LeaseLost
from celery_dlq.store.base import Lease, Segment
from celery_dlq.store.coordination.leases import check_lease
from celery_dlq.store.database import clock, tables
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.keeping import ArchiveTotals
from celery_dlq.store.rows.rows import Row

segment = tables.segment

#: The states of a segment. One that is committed must be closed. One that is begun may be given up: it is
#: abandoned until its files are deleted, and dropped from then on.
BEGUN, COMMITTED, CLOSED = "begun", "committed", "closed"
ABANDONED, DROPPED = "abandoned", "dropped"

#: Whether the manifest of a segment is in the archive.
_HAS_MANIFEST = segment.c.state.in_((COMMITTED, CLOSED))


class Segments(StoreRole):
    """The archive's segments that this store has made."""

    @writes
    def begin(self, connection: Connection, lease: Lease, *, now: datetime) -> Segment:
        """A new segment, the next of the chain.

        :raises LeaseLost: another process has taken the lease.
        """
        check_lease(connection, lease)
        newest = select(segment).order_by(segment.c.number.desc()).limit(1)
        row = connection.execute(newest).mappings().one_or_none()
        chain = secrets.token_hex(4) if row is None else row["chain"]
        number = 1 if row is None else row["number"] + 1
        made = f"{chain}-{number:08}-{secrets.token_hex(4)}"
        begun = {"id": made, "chain": chain, "number": number, "state": BEGUN, "begun_at": now}
        connection.execute(
            insert(segment).values(**begun, letters=0, size=0, deleted=0, manifest="")
        )
        return _segment_from(connection, begun)

    @reads
    def unfinished(self, connection: Connection) -> list[Segment]:
        """The segments that a process has to end, oldest first: those that are begun, committed or
        abandoned."""
        left = select(segment).where(segment.c.state.in_((BEGUN, COMMITTED, ABANDONED)))
        rows = connection.execute(left.order_by(segment.c.number)).mappings().all()
        return [_segment_from(connection, row) for row in rows]

    @writes
    def commit(
        self,
        connection: Connection,
        segment_id: str,
        lease: Lease,
        *,
        letters: int,
        size: int,
        manifest_sha256: str,
    ) -> None:
        """Note that the manifest of a segment that was begun is in the archive.

        :raises LeaseLost: another process has taken the lease, or has ended the segment.
        """
        check_lease(connection, lease)
        known = {"letters": letters, "size": size, "manifest": manifest_sha256}
        _move(connection, segment_id, BEGUN, COMMITTED, **known)

    @writes
    def close(self, connection: Connection, segment_id: str, lease: Lease, *, deleted: int) -> None:
        """Note that the letters of a committed segment are deleted.

        :raises LeaseLost: another process has taken the lease, or has ended the segment.
        """
        check_lease(connection, lease)
        now = clock.now(connection)
        _move(connection, segment_id, COMMITTED, CLOSED, deleted=deleted, ended_at=now)

    @writes
    def abandon(self, connection: Connection, segment_id: str, lease: Lease) -> None:
        """Note that a segment that was begun will never be committed.

        :raises LeaseLost: another process has taken the lease, or has ended the segment.
        """
        check_lease(connection, lease)
        _move(connection, segment_id, BEGUN, ABANDONED, ended_at=clock.now(connection))

    @writes
    def drop(self, connection: Connection, segment_id: str, lease: Lease) -> None:
        """Note that the files of an abandoned segment are deleted.

        :raises LeaseLost: another process has taken the lease, or has dropped the segment.
        """
        check_lease(connection, lease)
        _move(connection, segment_id, ABANDONED, DROPPED)

    @reads
    def committed(self, connection: Connection) -> dict[str, str]:
        """The segments whose manifests are in the archive, each with the SHA-256 of its manifest."""
        known = select(segment.c.id, segment.c.manifest).where(_HAS_MANIFEST)
        return {row.id: row.manifest for row in connection.execute(known)}

    @reads
    def totals(self, connection: Connection) -> ArchiveTotals:
        """What this store has archived."""
        return totals_of(connection)


def totals_of(connection: Connection) -> ArchiveTotals:
    """What this store has archived."""
    added = select(
        func.count(), func.coalesce(func.sum(segment.c.letters), 0),
        func.coalesce(func.sum(segment.c.size), 0), func.max(segment.c.ended_at),
    ).where(_HAS_MANIFEST)  # fmt: skip
    segments, letters, size, closed_at = connection.execute(added).one()
    return ArchiveTotals(
        chain=chain_of(connection), segments=segments, letters=int(letters), size=int(size),
        closed_at=closed_at,
    )  # fmt: skip


def chain_of(connection: Connection) -> str:
    """The chain of this store's segments; empty if it has none."""
    return connection.execute(select(func.min(segment.c.chain))).scalar_one() or ""


def _move(connection: Connection, segment_id: str, source: str, target: str, **values: Any) -> None:
    moved = update(segment).where(segment.c.id == segment_id, segment.c.state == source)
    if not connection.execute(moved.values(state=target, **values)).rowcount:
        raise LeaseLost(f"Segment {segment_id} was ended by another process; nothing was changed.")


def _segment_from(connection: Connection, row: Row) -> Segment:
    before = (
        select(segment.c.id, segment.c.manifest)
        .where(segment.c.number < row["number"], _HAS_MANIFEST)
        .order_by(segment.c.number.desc())
        .limit(1)
    )
    previous: Sequence[str] = connection.execute(before).one_or_none() or ("", "")
    return Segment(
        id=row["id"], chain=row["chain"], number=row["number"], previous_id=previous[0],
        previous=previous[1], committed=row["state"] == COMMITTED, abandoned=row["state"] == ABANDONED,
    )  # fmt: skip
