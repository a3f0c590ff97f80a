"""Chooses letters for handlers, sends a message for each, and makes the operations of those that redrive.

Each step is one transaction under the lease. Between the choice and the message, and between the verdict and
its operation, the process may be killed: the store knows what was not done yet, and a later round does it.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from celery.utils.log import get_logger

from celery_dlq.errors import HandlerError
from celery_dlq.known import unknown_task
from celery_dlq.model.handling import HANDLE_TASK, by_handler, may_have_letters
from celery_dlq.model.operation import Orders
from celery_dlq.redact import safe_message
from celery_dlq.retry.policy import Uniform, uniform
from celery_dlq.store.base import Filter, HandlerScope, Lease
from celery_dlq.store.tenure import Tenure
from celery_dlq.upkeep.handlers.calling import HARD_S
from celery_dlq.upkeep.handlers.definition import Handler
from celery_dlq.upkeep.periodic import Leased

logger: logging.Logger = get_logger(__name__)

#: Seconds between two rounds.
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
    """Gives dead letters to the handlers of an app.

    :param dlq: the app's dead-letter queue, with its ``app``, ``store``, ``handlers`` and ``redrives``.
    """

    def __init__(self, dlq: Any, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._dlq, self._monotonic = dlq, monotonic
        self._looks: dict[str, _Looks] = {}

    def run(self, lease: Lease, prolong: Callable[[], Lease | None]) -> float:
        """Serve each handler once, in the order of registration.

        :returns: seconds until it wants to run again.
        :raises StoreError: the store failed.
        :raises HandlerError: the broker does not accept the messages of a handler. The others were served.
        """
        earlier: list[HandlerScope] = []
        more, unsent = False, list[HandlerError]()
        for handler in self._dlq.handlers.values():
            try:
                more |= self._serve(lease, handler, earlier)
            except HandlerError as error:
                unsent.append(error)
            earlier.append(handler.scope)
            if prolong() != lease:
                return 0.0
        if unsent:
            raise unsent[0]
        return 0.0 if more else LOOK_S

    def _serve(self, lease: Lease, handler: Handler, earlier: Sequence[HandlerScope]) -> bool:
        """Run one round for a handler; returns whether there may be more to do."""
        given_up = self._dlq.store.handlings.expire(lease, handler.scope)
        if given_up:
            logger.error("handler %s: gave up on %d letters", handler.name, given_up)
        chosen = self._choose(lease, handler, earlier)
        redriven = self._redrive(lease, handler)
        self._send(lease, handler)
        return bool(chosen) or redriven == TOGETHER

    def _choose(self, lease: Lease, handler: Handler, earlier: Sequence[HandlerScope]) -> int:
        looks = self._looks.setdefault(handler.name, _Looks())
        is_sweep = looks.seen_to is None or self._monotonic() >= looks.sweep_at
        since = None if is_sweep or looks.seen_to is None else looks.seen_to - OVERLAP
        now = self._dlq.store.now()
        chosen = self._dlq.store.handlings.choose(
            lease, handler.scope, earlier, per_hour=handler.per_hour, most=MOST, since=since
        )
        # Only a look that found nothing has seen all of them.
        if chosen == 0:
            looks.seen_to = now
            if is_sweep:
                looks.sweep_at = self._monotonic() + SWEEP_S
        return chosen or 0

    def _send(self, lease: Lease, handler: Handler) -> None:
        store = self._dlq.store
        due = store.handlings.take_due(lease, handler.scope, limit=MOST, again_s=AGAIN_S)
        if not due:
            return
        ids, unstarted = list(due), sum(sends > 0 for sends in due.values())
        sent, queue = 0, handler.queue or self._dlq.settings.handler_queue
        try:
            with self._dlq.app.producer_or_acquire() as producer:
                for handling_id in ids:
                    self._publish(handler, queue, handling_id, producer)
                    sent += 1
        except Exception as error:
            store.handlings.put_off(ids[sent:], delay_s=UNSENT_S)
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
        self._dlq.app.send_task(
            HANDLE_TASK, (handling_id,), queue=queue, producer=producer,
            soft_time_limit=handler.timeout, time_limit=handler.timeout + HARD_S, ignore_result=True,
        )  # fmt: skip

    def _redrive(self, lease: Lease, handler: Handler) -> int:
        """Make the operation of the letters that the handler sends back; returns how many."""
        store = self._dlq.store
        found = store.handlings.to_redrive(lease, handler.name, limit=TOGETHER)
        if found:
            ids = tuple(one.task_id for one in found)
            orders = Orders(why=f"verdict of handler {handler.name}, version {handler.version}")
            operation = self._dlq.redrives.draft(
                Filter(ids=ids), orders, who=by_handler(handler.name), detached=True
            )
            store.handlings.redrive(lease, [one.id for one in found], operation)
        return len(found)


class HandlersThread(Leased):
    """Gives letters to handlers while it has the lease."""

    does = "handlers"
    stopped = "handlers get no letters"
    again = "handlers get letters again"

    def __init__(self, dlq: Any, holder: str, *, draw: Uniform = uniform) -> None:
        tenure = Tenure(lambda: dlq.store, lease_name(dlq.app, dlq.hold.place), holder)
        super().__init__(dlq.store_health, tenure, draw=draw)
        self._dispatcher = Dispatcher(dlq)

    def work(self, lease: Lease) -> float:
        """Give letters that wait to their handlers."""
        return self._dispatcher.run(lease, self._tenure.prolong)


def warn_of_unknown_tasks(app: Any) -> None:
    """Log the handlers whose filter names a task that the app does not have. Letters of such a task may still
    be in the store, so this is not an error."""
    for handler in app.dead_letter_queue.handlers.values():
        unknown = unknown_task(handler.where.task, filter(may_have_letters, app.tasks))
        if unknown:
            logger.warning("handler %s: %s", handler.name, unknown)


def lease_name(app: Any, place: str) -> str:
    """The name of the lease, under which the workers of one app on one broker give letters to handlers: each
    app has handlers of its own."""
    named = hashlib.blake2b(str(app.main).encode(), digest_size=8).hexdigest()
    return f"handlers.{place}.{named}"
