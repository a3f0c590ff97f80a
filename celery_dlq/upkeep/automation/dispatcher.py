"""The turn of a handler: letters are chosen for it, a message is sent for each, and those whose verdict is a
redrive get an operation.

Each step is one transaction under the lease. Between the choice and the message, and between the verdict and
its operation, the process may be killed: the store knows what was not done yet, and a later round does it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from celery.utils.log import get_logger

from celery_dlq.base.redact import safe_message
from celery_dlq.errors import HandlerError
from celery_dlq.model.automation import actor_of
from celery_dlq.model.handling import HANDLE_TASK
from celery_dlq.model.operation import Orders
from celery_dlq.redrive.context import RedriveContext
from celery_dlq.redrive.operation import Operations
from celery_dlq.store.base import Filter, Lease
from celery_dlq.upkeep.automation.calling import HARD_S, earlier_than
from celery_dlq.upkeep.automation.definition import Handler

logger: logging.Logger = get_logger(__name__)

#: Seconds between two turns of a handler that has nothing more to do.
LOOK_S = 2.0
#: Letters that wait for one handler at a time.
MOST = 200
#: Seconds after which a message is sent again if no worker has started it; they double each time.
AGAIN_S = 300.0
#: Seconds until a message that was not sent is tried again.
UNSENT_S = 5.0
#: Letters of one operation.
TOGETHER = 500
#: Seconds between two looks at all dead letters; the looks in between are at those that failed lately. A
#: letter may come late: from a spool, from a discard that was undone, or by a slow clock.
SWEEP_S = 60.0
#: How much earlier than the last look a letter may have failed that a look at recent ones finds.
OVERLAP = timedelta(seconds=60)


@dataclass
class _Looks:
    """How far the letters of one handler were looked at."""

    #: The handler needs no letter that failed before this; None if this is unknown.
    seen_to: datetime | None = None
    #: When to look at all of them again, by the monotonic clock.
    sweep_at: float = field(default=float("-inf"))


class Dispatcher:
    """Gives handlers their turns.

    :param handlers: all of the app, by name, in the order of their registration.
    """

    def __init__(
        self, context: RedriveContext, operations: Operations, handlers: Mapping[str, Handler]
    ) -> None:
        self._context, self._store, self._operations = context, context.store, operations
        self._handlers = handlers
        self._looks: dict[str, _Looks] = {}

    def turn(self, handler: Handler, lease: Lease) -> float:
        """Serve a handler once; returns the seconds until its next turn.

        :raises StoreError: the store failed.
        :raises HandlerError: the broker does not accept its messages.
        """
        given_up = self._store.automations.expire(lease, handler.scope)
        if given_up:
            logger.error("handler %s: gave up on %d letters", handler.name, given_up)
        chosen = self._choose(lease, handler)
        redriven = self._redrive(lease, handler)
        self._send(lease, handler)
        return 0.0 if chosen or redriven == TOGETHER else LOOK_S

    def _choose(self, lease: Lease, handler: Handler) -> int:
        """Queue the next letters; returns how many."""
        store, scope, monotonic = (
            self._store.automations,
            handler.scope,
            self._context.clock.monotonic,
        )
        looks = self._looks.setdefault(handler.name, _Looks())
        is_sweep = looks.seen_to is None or monotonic() >= looks.sweep_at
        since = None if is_sweep or looks.seen_to is None else looks.seen_to - OVERLAP
        now = self._store.now()
        limit = store.room(handler.name, per_hour=handler.per_hour, most=MOST)
        if not limit:
            return 0
        earlier = earlier_than(handler, self._handlers)
        letters = store.candidates(scope, earlier, limit=limit, since=since)
        if letters:
            return len(letters) if store.queue(lease, scope, letters) else 0
        # Only a look that found nothing has seen all of them.
        looks.seen_to = now
        if is_sweep:
            looks.sweep_at = monotonic() + SWEEP_S
        return 0

    def _send(self, lease: Lease, handler: Handler) -> None:
        store = self._store.automations
        due = store.take_due(lease, handler.scope, limit=MOST, again_s=AGAIN_S)
        if not due:
            return
        ids, unstarted = list(due), sum(sends > 0 for sends in due.values())
        sent, queue = 0, handler.queue or self._context.settings.handler_queue
        try:
            with self._context.app.producer_or_acquire() as producer:
                for handling_id in ids:
                    self._publish(handler, queue, handling_id, producer)
                    sent += 1
        except Exception as error:
            store.put_off(ids[sent:], delay_s=UNSENT_S)
            raise HandlerError(
                f"{len(ids) - sent} messages of handler {handler.name} could not be sent to queue "
                f"{queue}: {type(error).__name__}: {safe_message(error)}"
            ) from error
        if unstarted:
            logger.warning(
                "handler %s: %d messages were sent again, because no worker has started them; is there "
                "one that consumes the queue %s?", handler.name, unstarted, queue,
            )  # fmt: skip

    def _publish(self, handler: Handler, queue: str, handling_id: int, producer: Any) -> None:
        self._context.app.send_task(
            HANDLE_TASK, (handling_id,), queue=queue, producer=producer,
            soft_time_limit=handler.timeout, time_limit=handler.timeout + HARD_S, ignore_result=True,
        )  # fmt: skip

    def _redrive(self, lease: Lease, handler: Handler) -> int:
        """Make the operation of the letters that the handler sends back; returns how many."""
        store = self._store.automations
        found = store.to_redrive(lease, handler.name, limit=TOGETHER)
        if found:
            ids = tuple(one.task_id for one in found)
            orders = Orders(why=f"verdict of handler {handler.name}, version {handler.version}")
            operation = self._operations.draft(
                Filter(ids=ids), orders, who=actor_of(handler.name), detached=True
            )
            store.redrive(lease, [one.id for one in found], operation)
        return len(found)
