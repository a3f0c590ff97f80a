"""The part of the Python API for redrives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from celery_dlq.api.parts import AppParts
from celery_dlq.errors import MessageChanged, UnknownLetter
from celery_dlq.model.operation import DEFAULT_ORDERS, OperationState, Orders
from celery_dlq.worker.task import DLQTask

if TYPE_CHECKING:
    from celery_dlq.redrive.context import RedriveContext
    from celery_dlq.redrive.lifecycle import Operations
    from celery_dlq.redrive.plan import Plan, Trial, Tried
    from celery_dlq.redrive.run import OnProgress
    from celery_dlq.store.base import Filter, Operation


class RedriveAPI(AppParts):
    """The methods of a dead-letter queue for redrives."""

    @cached_property
    def redrives(self) -> Operations:
        """Makes and runs operations."""
        from celery_dlq.redrive.lifecycle import Operations

        return Operations(self.redrive_context)

    @cached_property
    def redrive_context(self) -> RedriveContext:
        """The app as its redrives see it."""
        from celery_dlq.redrive.context import Clock, RedriveContext

        # A letter is sent only if its task is registered in this app.
        self.app.loader.import_default_modules()
        return RedriveContext(
            app=self.app, store=self.store, settings=self.settings,
            redactor=self.redactor, reports=self._reports, clock=Clock(now=self.store.now),
        )  # fmt: skip

    def _reports(self, task: str) -> bool:
        """Whether workers report the outcomes of the messages of ``task``."""
        return isinstance(self.app.tasks.get(task), DLQTask)

    def plan(
        self, wanted: Filter, orders: Orders = DEFAULT_ORDERS, *, trial: Trial | None = None
    ) -> Plan:
        """The plan of a redrive of ``wanted``. Nothing is sent, but claims whose lease has ended are
        freed. The first letters are checked, up to 500 and for about a second; if there are more, the
        number to send is an upper bound.

        :param trial: the results of letters that were already checked.
        :raises OrdersError: the orders are not valid, or not for these letters.
        :raises RepairError: a change is not valid, or cannot be imported.
        """
        return self.redrives.plan(wanted, orders, trial)

    def dry_run(self, wanted: Filter, orders: Orders = DEFAULT_ORDERS) -> Iterator[Tried]:
        """The treatment that a redrive of ``wanted`` would give to each letter, the oldest failure first.
        Nothing is sent or changed.

        :raises OrdersError: the orders are not valid.
        :raises RepairError: a change is not valid, or cannot be imported.
        :raises RedriveError: the result backend does not answer.
        """
        return self.redrives.dry_run(wanted, orders)

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
        """Send the original messages of ``wanted`` back to their queues, as an operation. It returns
        when nothing is left to send, or when the operation was paused, cancelled or aborted: see its
        state and cause.

        :param plan: the result of :meth:`plan` for the same letters and orders, if there is one.
        :param detach: store the operation and leave it to a worker.
        :param should_stop: called between batches; True pauses the operation.
        :raises OrdersError: the orders are not valid, or not for these letters; nothing was changed.
        :raises StoreError: the store failed; letters that were already sent stay sent and marked.
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
        why: str = "",
        detach: bool = False,
        on_progress: OnProgress = lambda _progress: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Operation:
        """Continue an operation that was paused, or whose process has died.

        :param why: for the audit.
        :param detach: leave it to a worker.
        :raises UnknownOperation: no operation has this id.
        :raises OperationError: it has ended, another process runs it, or it was made for another app or
            broker.
        """
        if detach:
            return self.redrives.resume(operation_id, who=who, why=why)
        return self.redrives.run(
            operation_id, who=who, why=why, on_progress=on_progress, should_stop=should_stop
        )

    def pause(self, operation_id: str, *, who: str, why: str = "") -> Operation:
        """Pause an operation after the current batch, wherever it runs.

        :param why: for the audit, and shown with the operation.
        :raises UnknownOperation: no operation has this id.
        :raises OperationError: it has ended.
        """
        return self.redrives.pause(operation_id, who=who, why=why)

    def cancel(self, operation_id: str, *, who: str, why: str = "") -> Operation:
        """Cancel an operation after the current batch, wherever it runs. Letters that were not sent
        stay as they were.

        :param why: for the audit, and shown with the operation.
        :raises UnknownOperation: no operation has this id.
        :raises OperationError: it has already ended in another way.
        """
        return self.redrives.cancel(operation_id, who=who, why=why)

    def operation(self, operation_id: str) -> Operation:
        """The operation with this id.

        :raises UnknownOperation: no operation has it.
        """
        return self.redrives.get(operation_id)

    def operations(
        self, *, states: Iterable[OperationState] = (), limit: int = 50
    ) -> list[Operation]:
        """Operations in one of ``states`` (none: in any), newest first."""
        return self.store.operations.find(states=frozenset(states), limit=limit)

    def edit(
        self,
        task_id: str,
        *,
        who: str,
        why: str = "",
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        headers: Mapping[str, Any] | None = None,
        seen: str | None = None,
    ) -> str:
        """Change the message of a dead letter, which a redrive then sends; the earlier message stays in
        the letter's history. Parts that are None do not change. Returns the change as lines of a diff,
        with secrets hidden.

        :param why: for the audit.
        :param seen: the ``digest_of()`` of the message that was looked at; None for any message.
        :raises UnknownLetter: no letter has this id.
        :raises MessageChanged: the letter has another message by now.
        :raises RepairError: it is not dead, or it cannot be changed like this.
        """
        from celery_dlq.redrive.edit import digest_of, make_edit

        letter = self.store.letters.get(task_id)
        if letter is None:
            raise UnknownLetter
        if seen is not None and seen != digest_of(letter.envelope):
            raise MessageChanged
        given = {"args": args, "kwargs": kwargs, "headers": headers}
        changes = {name: value for name, value in given.items() if value is not None}
        now = self.store.now()
        edit = make_edit(self.app, letter, changes, self.redactor, who=who, why=why, at=now)
        if not self.store.edits.save(edit):
            raise MessageChanged
        return edit.diff
