"""Leases: what only one worker at a time is to do. All times are the database's."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import ColumnElement, and_, insert, select, update
from sqlalchemy.engine import Connection

from celery_dlq.store import clock, tables
from celery_dlq.store.base import Lease
from celery_dlq.store.rows import fit

lease = tables.lease


def take(connection: Connection, name: str, holder: str, seconds: float) -> Lease | None:
    """The lease ``name`` for ``holder``, new or prolonged; None while another one has it."""
    now, holder = clock.now(connection), fit(lease, {"holder": holder})["holder"]
    stored = select(lease).where(lease.c.name == name).with_for_update()
    row = connection.execute(stored).mappings().one_or_none()
    held = {"holder": holder, "expires_at": now + timedelta(seconds=seconds)}
    if row is None:
        # Of two that do this at once the second is refused, and its transaction begun again.
        connection.execute(insert(lease).values(name=name, token=1, **held))
        return Lease(name=name, token=1)
    # A holder whose time was up may have lost it to somebody and not know: it counts as new.
    is_mine = row["holder"] == holder and row["expires_at"] > now
    if not is_mine and row["expires_at"] > now:
        return None
    token = row["token"] + (not is_mine)
    connection.execute(update(lease).where(lease.c.name == name).values(token=token, **held))
    return Lease(name=name, token=token)


def give_up(connection: Connection, held: Lease) -> None:
    """Let the next one have it at once."""
    ended = update(lease).where(_is(held)).values(expires_at=clock.now(connection))
    connection.execute(ended)


def is_held(connection: Connection, held: Lease) -> bool:
    """Whether nobody has taken ``held`` over. It cannot change hands until the transaction ends."""
    mine = select(lease.c.token).where(_is(held)).with_for_update()
    return connection.execute(mine).scalar_one_or_none() is not None


def _is(held: Lease) -> ColumnElement[bool]:
    return and_(lease.c.name == held.name, lease.c.token == held.token)
