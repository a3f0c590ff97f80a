"""Leases: work that only one worker does at a time. All times are the database's."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import ColumnElement, and_, insert, select, update
from sqlalchemy.engine import Connection

from celery_dlq.errors import LeaseLost
from celery_dlq.store.base import Lease, ToDo
from celery_dlq.store.database import clock, tables
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.redrive.operations import any_left
from celery_dlq.store.rows.rows import fit_text

lease = tables.lease


class Leases(StoreRole):
    """Leases by name. Each has one holder at a time."""

    @reads
    def to_do(self, connection: Connection, name: str) -> ToDo:
        """The work for a worker that does not have the lease ``name``. Locks nothing."""
        return ToDo(lease_free_in_s=_free_in_s(connection, name), operations=any_left(connection))

    @writes
    def take(
        self, connection: Connection, name: str, *, holder: str, seconds: float
    ) -> Lease | None:
        """The lease ``name`` for ``holder``, new or prolonged; None while another holder has it."""
        now, holder = clock.now(connection), fit_text(lease.c.holder, holder)
        stored = select(lease).where(lease.c.name == name).with_for_update()
        row = connection.execute(stored).mappings().one_or_none()
        held = {"holder": holder, "expires_at": now + timedelta(seconds=seconds)}
        if row is None:
            # If two workers do this at the same time, the second insert is refused, and its transaction
            # begins again.
            connection.execute(insert(lease).values(name=name, token=1, **held))
            return Lease(name=name, token=1)
        # After a lease has ended, another holder may have had it without this one's notice, so this one
        # counts as new.
        is_mine = row["holder"] == holder and row["expires_at"] > now
        if not is_mine and row["expires_at"] > now:
            return None
        token = row["token"] + (not is_mine)
        connection.execute(update(lease).where(lease.c.name == name).values(token=token, **held))
        return Lease(name=name, token=token)

    @writes
    def give_up(self, connection: Connection, held: Lease) -> None:
        """End ``held``, so that the next holder may take it at once."""
        ended = update(lease).where(_is(held)).values(expires_at=clock.now(connection))
        connection.execute(ended)


def check_lease(connection: Connection, held: Lease) -> None:
    """Check that no one else has taken ``held``, nor can before the transaction ends.

    :raises LeaseLost: another process has.
    """
    if not is_held(connection, held):
        raise LeaseLost


def is_held(connection: Connection, held: Lease) -> bool:
    """Whether no one else has taken ``held``. No one else can take it until the transaction ends."""
    mine = select(lease.c.token).where(_is(held)).with_for_update()
    return connection.execute(mine).scalar_one_or_none() is not None


def _free_in_s(connection: Connection, name: str) -> float:
    now, stored = clock.now(connection), select(lease.c.expires_at).where(lease.c.name == name)
    expires_at = connection.execute(stored).scalar_one_or_none()
    return 0.0 if expires_at is None else max(0.0, (expires_at - now).total_seconds())


def _is(held: Lease) -> ColumnElement[bool]:
    return and_(lease.c.name == held.name, lease.c.token == held.token)
