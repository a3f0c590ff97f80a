"""The part of the Python API that is about redrives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any

from celery_dlq.errors import RepairError, UnknownLetter
from celery_dlq.operation import DEFAULT_ORDERS, OperationState, Orders
from celery_dlq.redact import Redactor

if TYPE_CHECKING:
    from celery_dlq.redrive.dry_run import Tried
    from celery_dlq.redrive.engine import OnProgress
    from celery_dlq.redrive.operations import Operations
    from celery_dlq.redrive.plan import Plan
    from celery_dlq.store.base import Filter, Operation, Store


class RedriveAPI:
    """Redrives as users of Python reach them, through the dead-letter queue of their app."""

    app: Any

    @cached_property
    def store(self) -> Store:
        """The store, its schema checked."""
        raise NotImplementedError

    @cached_property
    def redactor(self) -> Redactor:
        """Makes display copies of arguments."""
        raise NotImplementedError

    @cached_property
    def redrives(self) -> Operations:
        """Makes and runs operations."""
        raise NotImplementedError

    def plan(self, wanted: Filter, orders: Orders = DEFAULT_ORDERS) -> Plan:
        """What a redrive of ``wanted`` would do, without doing it. Frees claims whose lease has ended.

        :raises OrdersError: the orders make no sense, or not for these letters.
        """
        return self.redrives.plan(wanted, orders)

    def dry_run(self, wanted: Filter, orders: Orders = DEFAULT_ORDERS) -> Iterator[Tried]:
        """What a redrive of ``wanted`` would do with each letter, the oldest failure first. Nothing is
        sent or changed.

        :raises RepairError: a change makes no sense, or cannot be imported.
        :raises RedriveError: the result backend does not answer.
        """
        from celery_dlq.redrive.dry_run import dry_run

        self.app.loader.import_default_modules()
        now = datetime.now(timezone.utc)
        return dry_run(self.app, self.store, wanted, orders, self.redactor, now=now)

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

    def edit(
        self,
        task_id: str,
        *,
        who: str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> str:
        """Change the message of a dead letter, which a redrive then sends; what it was stays in the
        letter's history. Parts that are None stay as they are. Returns what was changed, as lines of a
        diff, with secrets hidden.

        :raises UnknownLetter: no letter has this id.
        :raises RepairError: it is not dead, or it cannot be changed like this.
        """
        from celery_dlq.redrive.edit import make_edit

        letter = self.store.get(task_id)
        if letter is None:
            raise UnknownLetter
        given = {"args": args, "kwargs": kwargs, "headers": headers}
        changes = {name: value for name, value in given.items() if value is not None}
        now = datetime.now(timezone.utc)
        edit = make_edit(self.app, letter, changes, self.redactor, who=who, at=now)
        if not self.store.save_edit(edit):
            raise RepairError(
                "The letter has changed meanwhile, so nothing was done; look at it again."
            )
        return edit.diff
