"""The turns of the processes that carry one operation: one after the other asks how many letters it may
claim.

The row of the operation is locked for the answer only, which depends on all letters that were allotted
before. So one rate, one canary, one guard and one limit hold for all processes. The claims themselves, which
take longer, are made at the same time.

A claim's row is written with the answer, before the claim has letters. If the process is killed in between,
the row ends as that of any other claim, and the number is free again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from sqlalchemy import select, update
from sqlalchemy.engine import Connection

from celery_dlq.errors import UnknownOperation
from celery_dlq.model.operation import OperationState
from celery_dlq.store.base import Allotment, Operation, Turn
from celery_dlq.store.database import tables
from celery_dlq.store.database.transactions import StoreRole, writes
from celery_dlq.store.redrive import claims, send_log
from celery_dlq.store.redrive.operations import has_claims
from celery_dlq.store.rows.rows import Row

operation = tables.operation

A = TypeVar("A", bound=Allotment)


class Turns(StoreRole):
    """Allots letters to the processes of an operation."""

    @writes
    def take(
        self,
        connection: Connection,
        of: Operation,
        *,
        token: str,
        holder: str,
        lease_until: datetime,
        now: datetime,
        decide: Callable[[Turn], A],
    ) -> tuple[Turn, A]:
        """Let ``decide`` say how many letters ``holder`` may claim under ``token``. Until then, no other
        process gets an answer, and the operation stays in its state. Claims whose lease has ended are
        released first, and those of processes whose own lease has ended.

        :param holder: the process, as its lease names it.
        :param lease_until: when the claim ends.
        :param decide: may be called again, if the transaction is repeated.
        :raises UnknownOperation: the operation is gone.
        """
        row = _locked(connection, of.id)
        send_log.rescue(connection, now)
        for one in claims.of_dead(connection, of):
            send_log.dissolve(connection, *one)
        turn = Turn(
            state=OperationState(row["state"]),
            allotted=row["allotted"],
            paced_from=row["paced_from"],
            is_idle=not has_claims(connection, of.id),
        )
        answer = decide(turn)
        if answer.size:
            claims.reserve(
                connection, token, of.id, holder=holder, size=answer.size, until=lease_until
            )
            allotted = {
                "allotted": turn.allotted + answer.size, "paced_from": answer.paced_from,
            }  # fmt: skip
            connection.execute(update(operation).where(operation.c.id == of.id).values(allotted))
        return turn, answer


def _locked(connection: Connection, operation_id: str) -> Row:
    values = select(operation.c.state, operation.c.allotted, operation.c.paced_from)
    of_it = values.where(operation.c.id == operation_id).with_for_update()
    row = connection.execute(of_it).mappings().one_or_none()
    if row is None:
        raise UnknownOperation
    return row
