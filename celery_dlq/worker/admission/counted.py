"""A request whose message came back: it is counted before it runs, and waits for its turn."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from celery.exceptions import TaskRevokedError

from celery_dlq.delivery import Delivery
from celery_dlq.headers import redrive_of
from celery_dlq.worker.admission.watched import WatchedRequest
from celery_dlq.worker.identity import letter_id


class CountedRequest(WatchedRequest):
    """A request that asks :class:`~celery_dlq.worker.admission.deliveries.Deliveries` before it runs, once it
    is known that the broker has delivered its message before. Any other one pays nothing."""

    _dlq_came_back = False

    #: This delivery, last, and those before it that did not end; empty when it is not counted.
    _dlq_known: tuple[Delivery, ...] = ()
    #: Whether the pool has it, or it was condemned.
    _dlq_decided = False
    _dlq_pool: Any = None

    def _count_deliveries(self) -> None:
        """Its message came back."""
        self._dlq_came_back = True
        if not str(self.type).startswith("celery."):
            # Celery shadows the method with a subclass made per task; an instance attribute is seen.
            self.__dict__["execute_using_pool"] = self._execute_counted

    def _execute_counted(self, pool: Any, **_: Any) -> None:
        """Called by the worker once there is a slot for this request in ``pool``."""
        if self.revoked():
            raise TaskRevokedError(self.id)  # as Celery's own does: the worker frees the slot
        self._dlq_pool = pool
        self.task.dlq.deliveries.admit(self)

    def as_delivery(self, process: str, *, alone: bool = False, death: str = "") -> Delivery:
        """This delivery, starting now. A number of 0 is for the store to fill in."""
        return Delivery(
            task_id=letter_id(self._message, self.id),
            task=self.type,
            redrive=redrive_of(self._message.headers),
            attempt=_whole(self._request_dict.get("retries")) + 1,
            number=0 if self._dlq_came_back else 1,
            started_at=datetime.now(timezone.utc),
            worker=self.hostname or "",
            process=process,
            alone=alone,
            death=death,
        )

    def run_counted(self, known: tuple[Delivery, ...]) -> None:
        """Run, in the slot that it has; does nothing when the pool has it already."""
        if self._dlq_decided:
            return
        self._dlq_decided, self._dlq_known = True, known
        try:
            type(self).execute_using_pool(self, self._dlq_pool)
        except TaskRevokedError:
            # Revoked while it waited; only the worker's own call would have freed the slot.
            deliveries = self.task.dlq.deliveries
            deliveries.solitude.give_slot_back()
            deliveries.forget(known[-1:], lambda: None)


def _whole(value: Any) -> int:
    try:
        return max(0, int(value or 0))
    except (TypeError, ValueError, OverflowError):
        return 0
