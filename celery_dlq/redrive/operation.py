"""The life of operations: planned, made, run under a lease, paused, resumed, cancelled."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from celery_dlq.base.addresses import broker_of
from celery_dlq.base.process import identity
from celery_dlq.errors import CeleryDLQError, OperationError, StoreError, UnknownOperation
from celery_dlq.model.operation import DEFAULT_ORDERS, Counts, OperationState, Orders
from celery_dlq.model.request import Request
from celery_dlq.redrive.context import RedriveContext
from celery_dlq.redrive.gate import Gate
from celery_dlq.redrive.letter.checks import why_no_task
from celery_dlq.redrive.letter.repair import Repairs, described
from celery_dlq.redrive.loop import OnProgress, RunResult, run_operation
from celery_dlq.redrive.orders import check_orders
from celery_dlq.redrive.plan import (
    Plan,
    Trial,
    Tried,
    check_canary,
    dry_run,
    make_plan,
    redrivable,
    try_first,
)
from celery_dlq.store.base import AppAndBroker, Filter, Operation
from celery_dlq.store.tenure import LEASE_S, Tenure, kept

#: Characters of a name that the store keeps.
_WIDTH = 255

#: Names that do not identify an app: the name of a script differs from the name under which its module is
#: imported, and Celery gives the last one to its fallback app, as in a Flower without the project's code.
_NAMELESS = frozenset({None, "__main__", "default"})

#: States in which an operation may be run.
_WAITING = frozenset({OperationState.PLANNED, OperationState.RUNNING})

#: The most operations in these states that a worker reads to find its own. There must be room for the
#: operations of other apps, and for those that no worker may run.
LEFT_AT_MOST = 1_000


class Operations:
    """Plans, starts and stops redrives."""

    def __init__(self, context: RedriveContext) -> None:
        self._app, self._store, self._clock = context.app, context.store, context.clock
        self._context = context
        self._gate = Gate(context.app, context.store, context.settings, context.proposes)
        self._host = f"{socket.gethostname()}:{os.getpid()}"
        # Begins with the process, because another process ends its leases when it is gone.
        self._holder = f"{identity()}/{self._host}/{uuid.uuid4().hex}"

    def plan(
        self, wanted: Filter, orders: Orders = DEFAULT_ORDERS, *, trial: Trial | None = None
    ) -> Plan:
        """The plan of a redrive of ``wanted``. Nothing is sent, but claims whose lease has ended are
        freed. The first letters are checked, up to 500 and for about a second; if there are more, the
        number to send is an upper bound.

        :param trial: the results of letters that were already checked.
        :raises OrdersError: the orders are not valid, or not for these letters.
        :raises RepairError: a change is not valid, or cannot be imported.
        :raises ContentsSealed: letters are encrypted with a key that is not here.
        """
        check_orders(orders)
        Repairs(self._app, orders.repair, self._context.redactor)
        self._store.claims.check_keys(wanted)
        self._store.claims.rescue(self._clock.now())
        if trial is None:
            trial = try_first(self._context, wanted, orders)
        plan = make_plan(self._context, wanted, orders, trial)
        check_canary(orders, plan, self._context.reports)
        return plan

    def dry_run(self, wanted: Filter, orders: Orders = DEFAULT_ORDERS) -> Iterator[Tried]:
        """The treatment that a redrive of ``wanted`` would give to each letter, the oldest failure first.
        Nothing is sent or changed.

        :raises OrdersError: the orders are not valid.
        :raises RepairError: a change is not valid, or cannot be imported.
        :raises RedriveError: the result backend does not answer.
        """
        check_orders(orders)
        return dry_run(self._context, wanted, orders)

    def start(
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
        :raises ApprovalNeeded: a second person has to approve it. The request was made, nothing else.
        :raises StoreError: the store failed; letters that were already sent stay sent and marked.
        """
        made = self.make(wanted, orders, who=who, detached=detach, plan=plan)
        if detach:
            return made
        return self.resume(made.id, who=who, on_progress=on_progress, should_stop=should_stop)

    def make(
        self, wanted: Filter, orders: Orders, *, who: str, detached: bool, plan: Plan | None = None
    ) -> Operation:
        """Store a new operation, as :meth:`start` does, and do not run it."""
        made = self.draft(wanted, orders, who=who, detached=detached, plan=plan)
        repair = described(orders.repair, self._context.redactor)
        self._gate.check(
            "redrive", made.wanted, who=who, why=orders.why, changes=orders.to_dict(), shown=repair,
            limit=orders.pacing.limit, to_task=orders.repair.to_task,
        )  # fmt: skip
        self._store.operations.create(made, repair=repair)
        return made

    def draft(
        self, wanted: Filter, orders: Orders, *, who: str, detached: bool, plan: Plan | None = None
    ) -> Operation:
        """A new operation over the letters that ``wanted`` finds now, which is not stored yet.

        :param plan: the result of :meth:`plan` for these letters and orders; without it, it is made here.
        :raises OrdersError: the orders are not valid, or not for these letters.
        """
        if plan is None:
            self.plan(wanted, orders, trial=Trial())
        now, limit = self._clock.now(), orders.pacing.limit
        wanted = redrivable(wanted)
        wanted = wanted.before(self._store.until_now(wanted, now=now))
        count = self._store.counts.letters(wanted)
        return Operation(
            id=uuid.uuid4().hex[:12], wanted=wanted, orders=orders,
            counts=Counts(planned=count if limit is None else min(count, limit)), who=who,
            host=self._host, home=self._here, detached=detached, created_at=now,
        )  # fmt: skip

    def approved(self, request: Request, ids: Sequence[str]) -> Operation:
        """The operation of an approved request, which is not stored yet. A worker runs it.

        :param ids: the letters that have not changed since the request was made.
        """
        wanted = Filter(ids=tuple(ids), states=frozenset(request.states))
        return Operation(
            id=request.id, wanted=wanted, orders=Orders.from_dict(request.changes),
            counts=Counts(planned=len(ids)), who=request.who, host=self._host, home=self._here,
            detached=True, created_at=self._clock.now(),
        )  # fmt: skip

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
        """Continue an operation that was paused, or whose process has died, or begin one. If an error stops
        the run, the operation is paused, with the error as its cause.

        :param why: for the audit.
        :param detach: leave it to a worker.
        :raises UnknownOperation: no operation has this id.
        :raises OperationError: it has ended, another process runs it, or it was made for another app or
            broker.
        """
        if detach:
            return self._move(operation_id, OperationState.RUNNING, who, why=why)
        found = self.get(operation_id)
        why_not = why_not_here(found, self._here)
        if why_not:
            raise OperationError(why_not)
        with self._lease_of(found) as is_kept:
            if is_kept is None:
                raise OperationError(
                    f"Another process runs operation {operation_id}; if it has died, it can be resumed "
                    f"within {LEASE_S:g} seconds."
                )
            operation = self._move(operation_id, OperationState.RUNNING, who, why=why)
            try:
                run = run_operation(
                    self._context, operation, on_progress=on_progress,
                    should_stop=lambda: should_stop() or not is_kept(),
                )  # fmt: skip
            except BaseException as error:
                # Otherwise a worker would continue an operation that was meant to end here.
                with contextlib.suppress(StoreError, OperationError):
                    self._move(operation_id, OperationState.PAUSED, who, _cause_of(error))
                raise
            if is_kept() and run.operation.state is OperationState.RUNNING:
                cause = run.error or "stopped on request"
                return self._move(operation_id, OperationState.PAUSED, who, cause)
            return run.operation

    def carry_on(self, operation_id: str, should_stop: Callable[[], bool]) -> RunResult | None:
        """Begin or resume an operation that was left to workers; None if another process runs it. An error
        that would stop every further try pauses the operation, and becomes its cause; other errors may not
        happen again at the next try.

        :raises StoreError: the store failed.
        """
        found = self._store.operations.get(operation_id)
        if found is None:
            return None
        with self._lease_of(found) as is_kept:
            # Another process may have changed it before this one had the lease.
            operation = None if is_kept is None else self._store.operations.get(operation_id)
            if operation is None or is_kept is None or not self._may_carry_on(operation):
                return None
            # Another process may have begun it in the meantime, and a person may have paused it since then.
            operation = self._store.operations.move(
                operation_id, OperationState.RUNNING, who=operation.who, now=self._clock.now(),
                source=OperationState.PLANNED,
            )  # fmt: skip
            if operation.state is not OperationState.RUNNING:
                return None
            run = self._run_left(operation, lambda: should_stop() or not is_kept())
            if run.error is None or not run.is_permanent_error or not is_kept():
                return run
            with contextlib.suppress(OperationError):  # it was ended in the meantime
                who = f"worker {self._host}"
                self._move(operation_id, OperationState.PAUSED, who, run.error)
            return RunResult(self.get(operation_id), run.error, is_permanent_error=True)

    def left(self) -> list[Operation]:
        """Operations that wait for a worker, or that a process runs, the oldest first. Operations of other
        apps on the same store are left out."""
        found = reversed(self._store.operations.find(states=_WAITING, limit=LEFT_AT_MOST))
        return [one for one in found if self._may_carry_on(one) and self._knows(one)]

    def pause(self, operation_id: str, *, who: str, why: str = "") -> Operation:
        """Pause an operation after the current batch, wherever it runs.

        :param why: for the audit, and shown with the operation.
        :raises UnknownOperation: no operation has this id.
        :raises OperationError: it has ended.
        """
        return self._stop(operation_id, OperationState.PAUSED, who, why)

    def cancel(self, operation_id: str, *, who: str, why: str = "") -> Operation:
        """Cancel an operation after the current batch, wherever it runs. Letters that were not sent
        stay as they were.

        :param why: for the audit, and shown with the operation.
        :raises UnknownOperation: no operation has this id.
        :raises OperationError: it has already ended in another way.
        """
        return self._stop(operation_id, OperationState.CANCELLED, who, why)

    def get(self, operation_id: str) -> Operation:
        """The operation with this id.

        :raises UnknownOperation: no operation has it.
        """
        operation = self._store.operations.get(operation_id)
        if operation is None:
            raise UnknownOperation
        return operation

    def find(self, *, states: Iterable[OperationState] = (), limit: int = 50) -> list[Operation]:
        """Operations in one of ``states`` (none: in any), newest first."""
        return self._store.operations.find(states=frozenset(states), limit=limit)

    @functools.cached_property
    def _here(self) -> AppAndBroker:
        return app_and_broker_of(self._app)

    def _may_carry_on(self, operation: Operation) -> bool:
        """Whether a worker of this app should run ``operation`` if no other process does."""
        is_planned = operation.state is OperationState.PLANNED
        is_left = operation.detached if is_planned else operation.state is OperationState.RUNNING
        return is_left and why_not_here(operation, self._here) is None

    def _knows(self, operation: Operation) -> bool:
        other = operation.orders.repair.to_task
        tasks = [other] if other else self._store.counts.by_task(operation.wanted)
        return not tasks or any(why_no_task(self._app, task) is None for task in tasks)

    def _run_left(self, operation: Operation, should_stop: Callable[[], bool]) -> RunResult:
        try:
            return run_operation(
                self._context,
                operation,
                on_progress=lambda _progress: None,
                should_stop=should_stop,
            )
        except (StoreError, OperationError):
            raise
        except CeleryDLQError as error:
            return RunResult(operation, _cause_of(error), is_permanent_error=True)

    @contextlib.contextmanager
    def _lease_of(self, operation: Operation) -> Iterator[Callable[[], bool] | None]:
        """Take the lease of an operation. Gives a function that says whether the lease still holds; None if
        another process has the lease."""
        tenure = Tenure(lambda: self._store, operation.lease_name, self._holder)
        lease = tenure.prolong()
        if lease is None:
            yield None
            return
        try:
            with kept(tenure, lease) as is_kept:
                yield is_kept
        finally:
            with contextlib.suppress(StoreError):  # the lease ends by itself
                tenure.end()

    def _stop(self, operation_id: str, to: OperationState, who: str, why: str) -> Operation:
        cause = f"{to.value} by {who}: {why}" if why else f"{to.value} by {who}"
        return self._move(operation_id, to, who, cause, why)

    def _move(
        self, operation_id: str, to: OperationState, who: str, cause: str = "", why: str = ""
    ) -> Operation:
        # A cause is read at places that do not know what the app is called on the command line.
        cause = cause.replace("celery -A <app>", "celery")
        return self._store.operations.move(
            operation_id, to, who=who, cause=cause, why=why, now=self._clock.now()
        )


def _cause_of(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return f"{type(error).__name__}: {error}".strip()


def app_and_broker_of(app: Any) -> AppAndBroker:
    """The name and broker of ``app``. Does not connect."""
    with app.connection_for_write() as connection:
        broker = broker_of(connection)
    name = "" if app.main in _NAMELESS else str(app.main)
    return AppAndBroker(app=name[:_WIDTH], broker=broker[:_WIDTH])


def why_not_here(operation: Operation, here: AppAndBroker) -> str | None:
    """Why ``operation`` must not run in this app and on this broker; None if it may. An unknown name
    matches any name."""
    if operation.unreadable:
        return f"Operation {operation.id} cannot run here: {operation.unreadable}"
    for kind, made_for, this in (
        ("app", operation.home.app, here.app),
        ("broker", operation.home.broker, here.broker),
    ):
        if made_for and this and made_for != this:
            return (
                f"Operation {operation.id} was made for {kind} {made_for}, and this is {this}; resume it "
                "there, or cancel it and make another one here."
            )
    return None
