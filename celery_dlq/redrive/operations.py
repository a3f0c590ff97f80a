"""The life of operations: planned, made, run under a lease, paused, resumed, cancelled."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import uuid
from collections.abc import Callable, Iterator

from celery_dlq.errors import CeleryDLQError, OperationError, StoreError, UnknownOperation
from celery_dlq.model.operation import Counts, OperationState, Orders
from celery_dlq.redrive.check.checks import why_no_task
from celery_dlq.redrive.context import RedriveContext, app_and_broker_of, why_not_here
from celery_dlq.redrive.dry_run import dry_run, try_first
from celery_dlq.redrive.engine import OnProgress, RunResult, run_operation
from celery_dlq.redrive.orders import check_canary, check_orders
from celery_dlq.redrive.plan import Plan, Trial, Tried, make_plan, redrivable
from celery_dlq.redrive.repair.repair import Repairs, described
from celery_dlq.store.base import AppAndBroker, Filter, Lease, Operation
from celery_dlq.store.tenure import LEASE_S, Tenure, kept

#: States in which an operation may be run.
_WAITING = frozenset({OperationState.PLANNED, OperationState.RUNNING})

#: Operations in these states among which a worker looks for its own. Those of other apps, and those that no
#: worker may run, must not hide it.
LEFT_AT_MOST = 1_000


class Operations:
    """The operations of an app."""

    def __init__(self, context: RedriveContext) -> None:
        self._app, self._store, self._clock = context.app, context.store, context.clock
        self._context = context
        self._host = f"{socket.gethostname()}:{os.getpid()}"
        self._holder = f"{self._host}/{uuid.uuid4().hex}"

    def plan(self, wanted: Filter, orders: Orders, trial: Trial | None = None) -> Plan:
        """The plan of an operation.

        :param trial: the results of letters that were tried already; without it, the first ones are tried
            here.
        :raises OrdersError: the orders are wrong, or wrong for these letters.
        :raises RepairError: a change is wrong, or cannot be imported.
        """
        self._check(orders)
        if trial is None:
            trial = try_first(self._context, wanted, orders)
        return self._planned(wanted, orders, trial)

    def dry_run(self, wanted: Filter, orders: Orders) -> Iterator[Tried]:
        """Try each letter of ``wanted``, the oldest failure first.

        :raises OrdersError: the orders are wrong.
        :raises RepairError: a change is wrong, or cannot be imported.
        :raises RedriveError: the result backend does not answer.
        """
        check_orders(orders)
        return dry_run(self._context, wanted, orders)

    def _check(self, orders: Orders) -> None:
        check_orders(orders)
        Repairs(self._app, orders.repair, self._context.redactor)
        self._store.claims.rescue(self._clock.now())

    def _planned(self, wanted: Filter, orders: Orders, trial: Trial) -> Plan:
        plan = make_plan(self._context, wanted, orders, trial)
        check_canary(orders, plan, self._context.reports)
        return plan

    def make(
        self,
        wanted: Filter,
        orders: Orders,
        *,
        who: str,
        detached: bool,
        plan: Plan | None = None,
    ) -> Operation:
        """A new operation over the letters that ``wanted`` finds now.

        :param plan: the result of :meth:`plan` for these letters and orders; without it, it is made here.
        :raises OrdersError: the orders are wrong, or wrong for these letters.
        """
        operation = self.draft(wanted, orders, who=who, detached=detached, plan=plan)
        repair = described(orders.repair, self._context.redactor)
        self._store.operations.create(operation, repair=repair)
        return operation

    def draft(
        self,
        wanted: Filter,
        orders: Orders,
        *,
        who: str,
        detached: bool,
        plan: Plan | None = None,
    ) -> Operation:
        """The operation of :meth:`make`, which is not stored yet."""
        if plan is None:
            self._check(orders)
            self._planned(wanted, orders, Trial())
        now, limit = self._clock.now(), orders.pacing.limit
        wanted = redrivable(wanted)
        wanted = wanted.before(self._store.cut_off(wanted, now=now))
        count = self._store.counts.letters(wanted)
        return Operation(
            id=uuid.uuid4().hex[:12],
            wanted=wanted,
            orders=orders,
            counts=Counts(planned=count if limit is None else min(count, limit)),
            who=who,
            host=self._host,
            home=self._here,
            detached=detached,
            created_at=now,
        )

    def run(
        self,
        operation_id: str,
        *,
        who: str,
        why: str = "",
        on_progress: OnProgress,
        should_stop: Callable[[], bool],
    ) -> Operation:
        """Begin or resume the operation in this process. If an error stops it, the operation is paused, with
        the error as its cause.

        :raises UnknownOperation: no operation has this id.
        :raises OperationError: it has ended, it is carried by as many other processes as it may be, or it was
            made for another app or broker.
        """
        found = self.get(operation_id)
        why_not = why_not_here(found, self._here)
        if why_not:
            raise OperationError(why_not)
        with self._held(found) as is_kept:
            if is_kept is None:
                raise OperationError(_why_full(found))
            operation = self._move(operation_id, OperationState.RUNNING, who, why=why)
            try:
                run = self._redrive(operation, on_progress, lambda: should_stop() or not is_kept())
            except BaseException as error:
                # Otherwise a worker would continue an operation that was meant to end here.
                with contextlib.suppress(StoreError, OperationError):
                    self._pause(operation_id, who, _cause_of(error))
                raise
            if is_kept() and run.operation.state is OperationState.RUNNING:
                return self._pause(operation_id, who, run.error or "stopped on request")
            return run.operation

    def carry_on(self, operation_id: str, should_stop: Callable[[], bool]) -> RunResult | None:
        """Begin or resume an operation that was left to workers, or join those that carry it; None if as many
        processes carry it as may. An error that would stop every further try pauses the operation, and
        becomes its cause; other errors may not happen again at the next try.

        :raises StoreError: the store failed.
        """
        found = self._store.operations.get(operation_id)
        if found is None:
            return None
        with self._held(found) as is_kept:
            # Another process may have changed it before this one had the lease.
            operation = None if is_kept is None else self._store.operations.get(operation_id)
            if operation is None or is_kept is None or not self._may_carry_on(operation):
                return None
            operation = self._begun(operation)
            if operation.state is not OperationState.RUNNING:
                return None
            run = self._carried_on(operation, lambda: should_stop() or not is_kept())
            if run.error is not None and run.lasts and is_kept():
                return self._given_up(operation, run.error)
            return run

    def left(self) -> list[Operation]:
        """Operations that wait for a worker, or that a process runs, the oldest first. Operations of other
        apps on the same store are left out."""
        found = reversed(self._store.operations.find(states=_WAITING, limit=LEFT_AT_MOST))
        return [one for one in found if self._may_carry_on(one) and self._knows(one)]

    def resume(self, operation_id: str, *, who: str, why: str = "") -> Operation:
        """Let a worker resume the operation."""
        return self._move(operation_id, OperationState.RUNNING, who, why=why)

    def pause(self, operation_id: str, *, who: str, why: str = "") -> Operation:
        """Stop the operation after its current batch."""
        return self._pause(operation_id, who, _with_reason(f"paused by {who}", why), why)

    def cancel(self, operation_id: str, *, who: str, why: str = "") -> Operation:
        """End the operation after its current batch."""
        cause = _with_reason(f"cancelled by {who}", why)
        return self._move(operation_id, OperationState.CANCELLED, who, cause, why)

    def get(self, operation_id: str) -> Operation:
        """The operation with this id.

        :raises UnknownOperation: no operation has it.
        """
        operation = self._store.operations.get(operation_id)
        if operation is None:
            raise UnknownOperation
        return operation

    @functools.cached_property
    def _here(self) -> AppAndBroker:
        return app_and_broker_of(self._app)

    def _may_carry_on(self, operation: Operation) -> bool:
        return is_left(operation) and why_not_here(operation, self._here) is None

    def _knows(self, operation: Operation) -> bool:
        other = operation.orders.repair.to_task
        tasks = [other] if other else self._store.counts.by_task(operation.wanted)
        return not tasks or any(why_no_task(self._app, task) is None for task in tasks)

    def _redrive(
        self, operation: Operation, on_progress: OnProgress, should_stop: Callable[[], bool]
    ) -> RunResult:
        return run_operation(
            self._context, operation, holder=self._holder, on_progress=on_progress,
            should_stop=should_stop,
        )  # fmt: skip

    def _carried_on(self, operation: Operation, should_stop: Callable[[], bool]) -> RunResult:
        try:
            return self._redrive(operation, lambda _progress: None, should_stop)
        except (StoreError, OperationError):
            raise
        except CeleryDLQError as error:
            return RunResult(operation, _cause_of(error), lasts=True)

    def _begun(self, operation: Operation) -> Operation:
        # Another process may have begun it in the meantime, and a person may have paused it since then.
        return self._store.operations.move(
            operation.id, OperationState.RUNNING, who=operation.who, now=self._clock.now(),
            source=OperationState.PLANNED,
        )  # fmt: skip

    def _given_up(self, operation: Operation, cause: str) -> RunResult:
        with contextlib.suppress(OperationError):  # it was ended in the meantime
            self._pause(operation.id, f"worker {self._host}", cause)
        return RunResult(self.get(operation.id), cause, lasts=True)

    @contextlib.contextmanager
    def _held(self, operation: Operation) -> Iterator[Callable[[], bool] | None]:
        """Take a lease of an operation. Gives a function that says whether it is still held, or None if other
        processes hold them all."""
        taken = self._taken(operation)
        if taken is None:
            yield None
            return
        tenure, lease = taken
        try:
            with kept(tenure, lease) as is_kept:
                yield is_kept
        finally:
            with contextlib.suppress(StoreError):  # the lease ends by itself
                tenure.end()

    def _taken(self, operation: Operation) -> tuple[Tenure, Lease] | None:
        names = operation.lease_names
        for name in self._store.leases.free(names) if len(names) > 1 else names:
            tenure = Tenure(lambda: self._store, name, self._holder)
            lease = tenure.prolong()
            if lease is not None:
                return tenure, lease
        return None

    def _pause(self, operation_id: str, who: str, cause: str, why: str = "") -> Operation:
        return self._move(operation_id, OperationState.PAUSED, who, cause, why)

    def _move(
        self, operation_id: str, to: OperationState, who: str, cause: str = "", why: str = ""
    ) -> Operation:
        return self._store.operations.move(
            operation_id, to, who=who, cause=cause, why=why, now=self._clock.now()
        )


def is_left(operation: Operation) -> bool:
    """Whether a worker should run ``operation`` if no other process does."""
    return operation.state is OperationState.RUNNING or (
        operation.state is OperationState.PLANNED and operation.detached
    )


def _why_full(operation: Operation) -> str:
    most = operation.orders.pacing.processes
    others = f"{most} other processes run" if most > 1 else "Another process runs"
    return (
        f"{others} operation {operation.id}; if one of them has died, it can be resumed within "
        f"{LEASE_S:g} seconds."
    )


def _with_reason(act: str, why: str) -> str:
    return f"{act}: {why}" if why else act


def _cause_of(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return f"{type(error).__name__}: {error}".strip()
