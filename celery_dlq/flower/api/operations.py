"""Operations, by REST."""

from __future__ import annotations

from celery_dlq.errors import FilterError
from celery_dlq.flower.api.paging import limit_of
from celery_dlq.flower.filters import check_names, words_of
from celery_dlq.flower.handler import Api
from celery_dlq.flower.lookup import whole_operation
from celery_dlq.flower.request import asked, first, sent_json
from celery_dlq.operation import OperationState, Sending, SendingState
from celery_dlq.queue import DeadLetterQueue
from celery_dlq.store import base
from celery_dlq.view import records


class Operations(Api):
    """``GET /api/dead-letters/operations``"""

    async def get(self) -> None:
        """Operations, newest first."""
        given = asked(self.request)
        check_names(given, ("state", "limit"))
        states, limit = words_of(OperationState, "state", given), limit_of(given)
        found = await self.site.ask(lambda store: store.operations(states=states, limit=limit))
        self.reply({"operations": [records.operation_record(operation) for operation in found]})


class Operation(Api):
    """``GET /api/dead-letters/operations/{id}``"""

    async def get(self, beginning: str) -> None:
        """One operation with a page of its letters."""
        given = asked(self.request)
        check_names(given, ("state", "limit", "after"))
        states, limit = words_of(SendingState, "state", given), limit_of(given)
        after = first(given, "after") or None

        def look(store: base.Store) -> tuple[base.Operation, base.Rows[Sending]]:
            operation = whole_operation(store, beginning)
            rows = store.sendings(operation.id, states=states, limit=limit, after=after)
            return operation, rows

        operation, rows = await self.site.ask(look)
        self.reply({**records.whole_operation_record(operation, rows.rows), "next": rows.next})


class Move(Api):
    """``POST /api/dead-letters/operations/{id}/<act>``"""

    async def post(self, beginning: str) -> None:
        """Carry it out."""
        if sent_json(self.request):
            raise FilterError("This takes no body.")
        who = self.actor

        def carry_out(queue: DeadLetterQueue) -> base.Operation:
            return self.move(queue, whole_operation(queue.store, beginning).id, who)

        self.reply(records.operation_record(await self.site.act(carry_out)))

    def move(self, queue: DeadLetterQueue, operation_id: str, who: str) -> base.Operation:
        """Do it. Runs in a thread."""
        raise NotImplementedError


class Pause(Move):
    """Stop it so that it can go on."""

    def move(self, queue: DeadLetterQueue, operation_id: str, who: str) -> base.Operation:
        """After the batch under way."""
        return queue.pause(operation_id, who=who)


class Resume(Move):
    """Let it go on."""

    def move(self, queue: DeadLetterQueue, operation_id: str, who: str) -> base.Operation:
        """In a worker."""
        return queue.resume(operation_id, who=who, detach=True)


class Cancel(Move):
    """End it."""

    def move(self, queue: DeadLetterQueue, operation_id: str, who: str) -> base.Operation:
        """After the batch under way."""
        return queue.cancel(operation_id, who=who)
