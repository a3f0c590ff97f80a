"""Sends messages of redrives again that have vanished from the broker: find, look, take, publish.

Where Redis allows no script, kombu takes a message off a list, and records in a second step that a worker has
it. If Redis or the worker is killed in between, or Redis loses data, both have forgotten the message, and no
outcome of its redrive would come.

If the process is killed between any two steps, at most one more copy is sent after another wait. No body runs
under two copies, because the worker that gets a copy asks the store first.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from celery.utils.log import get_logger

from celery_dlq.errors import FunctionHangs, RedriveError, RepairError
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.operation import Repair
from celery_dlq.redrive.broker.publisher import Publisher, open_publisher
from celery_dlq.redrive.broker.queues import Look, Presence, open_presence
from celery_dlq.redrive.broker.trace import Tracing
from celery_dlq.redrive.letter.payload import task_of
from celery_dlq.redrive.letter.repair import Repairs
from celery_dlq.redrive.operation import app_and_broker_of
from celery_dlq.store.base import BATCH_SIZE, Lease, Overdue
from celery_dlq.store.tenure import TRY_S
from celery_dlq.worker.secrecy import hidden

logger: logging.Logger = get_logger(__name__)

#: Seconds between rounds, at most; and the most of the time that rounds may take.
ROUND_S, MOST_OF_TIME = 60.0, 0.1
#: Seconds without a call after which the store counts as away. A worker that could not ask it, either, may
#: have run messages unchecked, and needs some time to report them.
GAP_S = 3 * TRY_S
#: Overdue messages of an operation that one round looks for.
AT_ONCE = 5_000
#: Ids that the log names.
_NAMED = 5


class Resender:
    """Sends the vanished messages of redrives on the broker of an app.

    :param dlq: the app's :class:`~celery_dlq.api.queue.DeadLetterQueue`.
    """

    def __init__(self, dlq: Any, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._dlq, self._monotonic = dlq, monotonic
        self._called_at, self._due_at = float("-inf"), 0.0
        #: The last overdue message that was looked for, by operation, if there are more.
        self._reached: dict[str, Overdue] = {}
        #: The obstacles that were logged, by what they concern.
        self._logged: dict[str, str] = {}

    def run(self, prolong: Callable[[], Lease | None]) -> None:
        """One round, if it is due and the store was not away recently.

        :param prolong: the lease, prolonged; None if it is lost.
        :raises StoreError: the store failed.
        """
        now = self._monotonic()
        if now - self._called_at > GAP_S:
            self._due_at = now + self._pause_s
        self._called_at = now
        if now >= self._due_at:
            self._round(prolong)
            self._called_at = self._monotonic()
            took_s = self._called_at - now
            self._due_at = self._called_at + max(self._pause_s, took_s / MOST_OF_TIME)

    @property
    def _pause_s(self) -> float:
        return min(ROUND_S, float(self._dlq.hold.vanished_after_s))

    @cached_property
    def _broker(self) -> str:
        return app_and_broker_of(self._dlq.app).broker

    def _round(self, prolong: Callable[[], Lease | None]) -> None:
        repairs = self._dlq.store.vanished.repairs(self._broker)
        self._reached = {one: last for one, last in self._reached.items() if one in repairs}
        try:
            with ExitStack() as stack:
                broker = _Broker(self._dlq.app, stack)
                for operation_id, repair in repairs.items():
                    self._send_again(broker, operation_id, repair, prolong)
        except RedriveError as error:
            self._log_once("", str(error))
        else:
            self._logged.pop("", None)

    def _send_again(
        self,
        broker: _Broker,
        operation_id: str,
        repair: Repair,
        prolong: Callable[[], Lease | None],
    ) -> None:
        overdue = self._overdue(operation_id, repair)
        vanished = [one for one in overdue if self._has_vanished(one, broker.look(one, repair))]
        for first in range(0, len(vanished), BATCH_SIZE):
            lease = prolong()
            if lease is None:
                return
            self._send_batch(broker.publisher, lease, vanished[first : first + BATCH_SIZE], repair)

    def _overdue(self, operation_id: str, repair: Repair) -> list[Overdue]:
        sent_before = self._sent_before(repair)
        if sent_before is None:
            return []
        found: list[Overdue] = self._dlq.store.vanished.find(
            operation_id, sent_before=sent_before, limit=AT_ONCE,
            after=self._reached.pop(operation_id, None),
        )  # fmt: skip
        if len(found) == AT_ONCE:
            self._reached[operation_id] = found[-1]
        return found

    def _sent_before(self, repair: Repair) -> datetime | None:
        """The time before which an overdue message was sent; None if none is overdue yet."""
        wait = timedelta(seconds=self._dlq.hold.vanished_after_s)
        sent_before: datetime = self._dlq.store.now() - wait
        if repair.eta is not None and repair.eta > sent_before:
            return None
        # A worker holds a message until its time has come, and accepts it then.
        return sent_before - timedelta(seconds=repair.countdown_s or 0.0)

    def _has_vanished(self, one: Overdue, look: Look | None) -> bool:
        if look is None or (one.task_id, one.redrive) in look.held:
            return False
        return one.accepted is None or (look.sees_workers and self._is_acked_late(one.task))

    def _is_acked_late(self, task: str) -> bool:
        """Whether the broker has the message of ``task`` until its run has ended. The messages of other tasks
        are not with the broker while they run."""
        known = self._dlq.app.tasks.get(task)
        return bool(known is not None and known.acks_late)

    def _send_batch(
        self, publisher: Publisher, lease: Lease, batch: Sequence[Overdue], repair: Repair
    ) -> None:
        operation_id, store, now = batch[0].operation, self._dlq.store, self._dlq.store.now()
        repairs = self._repairs(operation_id, repair)
        if repairs is None:
            return
        letters = store.vanished.take(lease, batch, token=uuid.uuid4().hex, now=now)
        accepted = {one.task_id for one in batch if one.accepted is not None}
        ready = list[DeadLetter]()
        try:
            ready += self._ready(letters, repairs, accepted, now)
        except FunctionHangs as error:  # the messages of other operations are sent
            self._log_once(operation_id, f"operation {operation_id}: {error}")
        tracing = Tracing(self._dlq.app, self._dlq.settings, operation_id, store.now)
        sent = tracing.publish(publisher, ready)()
        gone = {*sent.confirmed, *sent.uncertain}
        unsent = [one.task_id for one in letters if one.task_id not in gone]
        store.vanished.give_back(operation_id, unsent, at=now)
        self._tell(operation_id, sorted(gone))
        for task_id, why in sent.refused.items():
            logger.error("the vanished message of %s cannot be sent again: %s", task_id, why)
        if sent.error:
            logger.error("vanished messages could not all be sent again: %s", sent.error)

    def _repairs(self, operation_id: str, repair: Repair) -> Repairs | None:
        """The changes that the operation has made; None if this app cannot make them."""
        # The time for which the message was to wait is over.
        now_due = replace(repair, countdown_s=None, eta=None)
        try:
            return Repairs(self._dlq.app, now_due, self._dlq.redactor)
        except RepairError as error:
            self._log_once(operation_id, f"operation {operation_id}: {error}")
            return None

    def _ready(
        self, letters: Iterable[DeadLetter], repairs: Repairs, accepted: set[str], now: datetime
    ) -> Iterator[DeadLetter]:
        """The messages to send, changed as the operation has changed them."""
        for original in letters:
            repaired = repairs.repaired(original, now)
            letter, why_not = repaired.letter, repaired.why_not
            if why_not is not None:
                logger.error(
                    "the vanished message of %s is not sent again: %s",
                    letter.task_id,
                    hidden(why_not),
                )
            elif letter.task_id not in accepted or self._is_acked_late(task_of(letter)):
                yield letter

    def _tell(self, operation_id: str, task_ids: Sequence[str]) -> None:
        if not task_ids:
            return
        if self._dlq.meter is not None:
            self._dlq.meter.sent_again(len(task_ids))
        left = len(task_ids) - _NAMED
        named = ", ".join(task_ids[:_NAMED]) + (f" and {left} more" if left > 0 else "")
        logger.warning(
            "operation %s: messages had vanished from the broker, and were sent again (%d): %s",
            operation_id, len(task_ids), named,
        )  # fmt: skip

    def _log_once(self, about: str, trouble: str) -> None:
        if self._logged.get(about) != trouble:
            logger.error("vanished messages of redrives are not sent again: %s", trouble)
        self._logged[about] = trouble


class _Broker:
    """The connections of one round, each opened when it is needed.

    :param stack: closes them.
    """

    def __init__(self, app: Any, stack: ExitStack) -> None:
        self._app, self._stack = app, stack
        self._looks: dict[str, Look | None] = {}

    def look(self, one: Overdue, repair: Repair) -> Look | None:
        """The messages in the queue to which the message of ``one`` was sent."""
        queue = repair.to_queue or one.queue
        if queue not in self._looks:
            self._looks[queue] = self._presence.look(queue)
        return self._looks[queue]

    @cached_property
    def publisher(self) -> Publisher:
        return self._stack.enter_context(open_publisher(self._app))

    @cached_property
    def _presence(self) -> Presence:
        return self._stack.enter_context(open_presence(self._app))
