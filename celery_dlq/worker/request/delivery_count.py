"""Counts the delivery of a message that the broker has delivered before, before the message runs. The message
may have to wait for its turn. Other messages pay nothing."""

from __future__ import annotations

from typing import Any

from celery.exceptions import TaskRevokedError

from celery_dlq.model.delivery import Delivery
from celery_dlq.worker.request.fate import is_internal
from celery_dlq.worker.request.handover import refusal


class DeliveryCount:
    """Asks :class:`~celery_dlq.worker.admission.deliveries.Deliveries` before its request runs."""

    def __init__(self, request: Any) -> None:
        self._request = request
        #: The earlier deliveries that did not end, and this one last; empty until the store has answered.
        self.known: tuple[Delivery, ...] = ()
        self._pool: Any = None
        #: Whether the pool has the request, or the request will not run.
        self._is_decided = False
        if not is_internal(request):
            # Celery overrides the method in a subclass for each task, but not on the instance.
            request.__dict__["execute_using_pool"] = self._execute

    def end(self) -> None:
        """Note that the request must not run from now on."""
        self._is_decided = True

    def run(self, known: tuple[Delivery, ...]) -> None:
        """Run the request in the slot that it has, unless the pool has it already."""
        if self._is_decided:
            return
        self._is_decided, self.known = True, known
        request, deliveries = self._request, self._request.dlq.deliveries
        try:
            type(request).execute_using_pool(request, self._pool)
        except TaskRevokedError:
            # Revoked while it waited; only the worker's own call would have freed the slot.
            deliveries.give_slot_back()
            deliveries.forget(known[-1:], lambda: None)
        except Exception as exc:
            error = refusal(request, self._pool, exc)
            if error is None:
                raise
            deliveries.give_slot_back()
            request.refuse(error)

    def _execute(self, pool: Any, **_: Any) -> None:
        """Called by the worker once there is a slot for the request in ``pool``."""
        request = self._request
        if request.revoked():
            # As Celery's own method does: the worker frees the slot.
            raise TaskRevokedError(request.id)
        self._pool = pool
        request.dlq.deliveries.admit(request)
