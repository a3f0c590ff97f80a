"""The part of the Python API that is about operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from celery_dlq.operation import DEFAULT_ORDERS, OperationState, Orders

if TYPE_CHECKING:
    from celery_dlq.redrive.engine import OnProgress
    from celery_dlq.redrive.operations import Operations
    from celery_dlq.redrive.plan import Plan
    from celery_dlq.store.base import Filter, Operation


class RedriveAPI:
    """Operations as users of Python reach them, through the dead-letter queue of their app."""

    @cached_property
    def redrives(self) -> Operations:
        """Makes and runs operations."""
        raise NotImplementedError

    def plan(self, wanted: Filter, orders: Orders = DEFAULT_ORDERS) -> Plan:
        """What a redrive of ``wanted`` would do, without doing it. Frees claims whose lease has ended.

        :raises OrdersError: the orders make no sense, or not for these letters.
        """
        return self.redrives.plan(wanted, orders)

    def redrive(
        self,
        wanted: Filter,
        *,
        who: str,
        orders: Orders = DEFAULT_ORDERS,
        plan: Plan | None = None,
        detach: bool = False,
        on_progress: OnProgress = lambda _progress: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Operation:
        """Send the original messages of ``wanted`` back to their queues, as an operation. It returns when
        nothing is left to send, and when it was paused, cancelled or aborted: see its state and cause.

        :param plan: what :meth:`plan` said of the same letters and orders, where that was asked already.
        :param detach: write it down and leave it to a worker.
        :param should_stop: asked between batches; True pauses the operation.
        :raises OrdersError: the orders make no sense, or not for these letters; nothing was changed.
        :raises StoreError: the store failed; what was sent until then stays sent and marked.
        """
        made = self.redrives.make(wanted, orders, who=who, detached=detach, plan=plan)
        if detach:
            return made
        return self.redrives.run(made.id, who=who, on_progress=on_progress, should_stop=should_stop)

    def resume(
        self,
        operation_id: str,
        *,
        who: str,
        detach: bool = False,
        on_progress: OnProgress = lambda _progress: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Operation:
        """Go on with an operation that was paused, or whose process has died.

        :param detach: leave it to a worker.
        :raises UnknownOperation: there is none with this id.
        :raises OperationError: it has ended, another process runs it, or it was made for another app or
            broker.
        """
        if detach:
            return self.redrives.resume(operation_id, who=who)
        return self.redrives.run(
            operation_id, who=who, on_progress=on_progress, should_stop=should_stop
        )

    def pause(self, operation_id: str, *, who: str) -> Operation:
        """Stop an operation after the batch under way, wherever it runs.

        :raises UnknownOperation: there is none with this id.
        :raises OperationError: it has ended.
        """
        return self.redrives.pause(operation_id, who=who)

    def cancel(self, operation_id: str, *, who: str) -> Operation:
        """End an operation after the batch under way, wherever it runs. What was not sent is as it was.

        :raises UnknownOperation: there is none with this id.
        :raises OperationError: it has ended otherwise.
        """
        return self.redrives.cancel(operation_id, who=who)

    def operation(self, operation_id: str) -> Operation:
        """The operation with this id.

        :raises UnknownOperation: there is none.
        """
        return self.redrives.get(operation_id)

    def operations(
        self, *, states: Iterable[OperationState] = (), limit: int = 50
    ) -> list[Operation]:
        """Operations in one of ``states`` (none: in any), newest first."""
        return self.redrives.find(frozenset(states), limit)
