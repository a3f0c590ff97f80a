"""The tickets and escalations of groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.engine import Connection

from celery_dlq.base.redact import hide_known
from celery_dlq.model.automation import actor_of
from celery_dlq.model.handling import (
    Escalate,
    GroupTicket,
    Handling,
    Ticket,
    TicketKind,
)
from celery_dlq.store.database.tables import ticket
from celery_dlq.store.database.transactions import StoreRole, reads
from celery_dlq.store.rows import audit
from celery_dlq.store.rows.query import one_of
from celery_dlq.store.rows.rows import Row, fit, read_row, replace_rows

#: The columns that a newer ticket of the same group replaces.
_REPLACED = ("url", "recipient", "why", "handler", "at")


class Tickets(StoreRole):
    """The tickets and escalations of groups. A group has at most one of each."""

    @reads
    def of_groups(
        self, connection: Connection, fingerprints: Collection[str]
    ) -> Mapping[str, tuple[GroupTicket, ...]]:
        """The tickets and escalations of these groups, by fingerprint; a ticket comes before an escalation.
        Groups that have none are left out."""
        if not fingerprints:
            return {}
        these = one_of(connection, ticket.c.fingerprint, sorted(fingerprints))
        stored = select(ticket).where(these).order_by(ticket.c.kind.desc())
        found: dict[str, tuple[GroupTicket, ...]] = {}
        for row in connection.execute(stored).mappings():
            of_group = found.get(row["fingerprint"], ())
            found[row["fingerprint"]] = (*of_group, _ticket_from(row))
        return found


def write_ticket(
    connection: Connection, handling: Handling, verdict: Ticket | Escalate, now: datetime
) -> None:
    """Give the group of a handling its ticket or escalation, in place of an earlier one; audited."""
    values = fit(ticket, _values(handling, verdict, now))
    replace_rows(connection, ticket, [values], _REPLACED)
    said: dict[str, object] = dict(vars(verdict))
    why = str(said.pop("why", ""))
    act = "ticket" if isinstance(verdict, Ticket) else "escalate"
    audit.write_audit(
        connection, who=actor_of(handling.name), act=act, count=1, why=why,
        detail={"letter": handling.task_id, "group": handling.fingerprint, **said}, at=now,
    )  # fmt: skip


def _values(handling: Handling, verdict: Ticket | Escalate, now: datetime) -> dict[str, Any]:
    same = {"fingerprint": handling.fingerprint, "handler": handling.name, "at": now}
    if isinstance(verdict, Ticket):
        given = {"kind": TicketKind.TICKET.value, "url": verdict.url, "recipient": "", "why": ""}
    else:
        kind = TicketKind.ESCALATION.value
        given = {"kind": kind, "url": "", "recipient": verdict.to, "why": verdict.why}
    return {**same, **given}


def _ticket_from(row: Row) -> GroupTicket:
    url = hide_known(row["url"])
    return read_row(GroupTicket, row, url=url, to=row["recipient"])
