"""REST: operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.errors import FilterError
from celery_dlq.flower.acts import move, reason_in
from celery_dlq.flower.api.paging import limit_of
from celery_dlq.flower.filters import check_names, words_of
from celery_dlq.flower.http.handler import Api
from celery_dlq.flower.http.request import asked, first, sent_json
from celery_dlq.hiding import hide_operation
from celery_dlq.model.operation import OperationState, Sending, SendingState
from celery_dlq.store import base
from celery_dlq.view import lookup, records

if TYPE_CHECKING:
    from celery_dlq.store import Store


class Operations(Api):
    """``GET /api/dead-letters/operations``"""

    async def get(self) -> None:
        """Operations, newest first."""
        given = asked(self.request)
        check_names(given, ("state", "limit"))
        states, limit = words_of(OperationState, "state", given), limit_of(given)
        found = await self.site.ask(lambda store: store.operations.find(states=states, limit=limit))
        self.reply({"operations": [records.operation_record(operation) for operation in found]})


class Operation(Api):
    """``GET /api/dead-letters/operations/{id}``"""

    async def get(self, prefix: str) -> None:
        """One operation, with a page of its letters."""
        given = asked(self.request)
        check_names(given, ("state", "limit", "after"))
        states, limit = words_of(SendingState, "state", given), limit_of(given)
        after = first(given, "after") or None

        def look(store: Store) -> tuple[base.Operation, base.Rows[Sending]]:
            operation = lookup.operation(store, prefix)
            rows = store.sendings.of_operation(
                operation.id, states=states, limit=limit, after=after
            )
            return operation, rows

        operation, rows = await self.site.ask(look)
        self.reply({**records.whole_operation_record(operation, rows.rows), "next": rows.next})


class Move(Api):
    """``POST /api/dead-letters/operations/{id}/<act>``: pause, resume or cancel."""

    async def post(self, prefix: str) -> None:
        """Run the act."""
        given = sent_json(self.request)
        if given.keys() - {"why"}:
            raise FilterError("The body may have only the field why; leave the others out.")
        who, why = self.actor, reason_in(given)

        def carry_out(queue: DeadLetterQueue) -> base.Operation:
            found = lookup.operation(queue.store, prefix)
            moved = move(queue, found.id, self.act, who, why)
            return hide_operation(moved, queue.redactor)

        self.reply(records.operation_record(await self.site.act(carry_out)))
