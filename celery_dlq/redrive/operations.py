"""Operations from the first order to the last letter: made, run under a lease, paused, resumed, cancelled."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

from celery_dlq.errors import CeleryDLQError, OperationError, StoreError, UnknownOperation
from celery_dlq.operation import Counts, OperationState, Orders
from celery_dlq.redrive.checks import why_no_task
from celery_dlq.redrive.engine import OnProgress, Redrive, Run
from celery_dlq.redrive.home import home_of, why_not_here
from celery_dlq.redrive.lease import LEASE_S, Tenure, kept
from celery_dlq.redrive.means import Means
from celery_dlq.redrive.orders import check_canary, check_orders
from celery_dlq.redrive.plan import Plan, make_plan, redrivable
from celery_dlq.redrive.repair import Repairs
from celery_dlq.store.base import Filter, Home, Operation

#: States in which an operation waits for somebody to run it.
_WAITING = frozenset({OperationState.PLANNED, OperationState.RUNNING})


class Operations:
    """The operations of an app."""

    def __init__(self, means: Means) -> None:
        self._app, self._store, self._clock = means.app, means.store, means.clock
        self._means = means
        self._host = f"{socket.gethostname()}:{os.getpid()}"
        self._holder = f"{self._host}/{uuid.uuid4().hex}"

    def plan(self, wanted: Filter, orders: Orders) -> Plan:
        """What an operation would do.

        :raises OrdersError: the orders make no sense, or not for these letters.
        :raises RepairError: a change makes no sense, or cannot be imported.
        """
        check_orders(orders)
        Repairs(self._app, orders.repair, self._means.redactor)
        self._store.rescue(self._clock.now())
        limit, to_task = orders.pacing.limit, orders.repair.to_task
        plan = make_plan(self._app, self._store, wanted, limit=limit, to_task=to_task)
        check_canary(orders, plan, self._means.reports)
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

        :param plan: what :meth:`plan` said of these letters and orders; without it, that is asked here.
        :raises OrdersError: the orders make no sense, or not for these letters.
        """
        if plan is None:
            self.plan(wanted, orders)
        now, limit = self._clock.now(), orders.pacing.limit
        wanted = redrivable(wanted)
        wanted = replace(wanted, until=min(wanted.until, now) if wanted.until else now)
        count = self._store.count(wanted)
        operation = Operation(
            id=uuid.uuid4().hex[:12],
            wanted=wanted,
            orders=orders,
            counts=Counts(planned=count if limit is None else min(count, limit)),
            who=who,
            host=self._host,
            home=self._home,
            detached=detached,
            created_at=now,
        )
        self._store.create_operation(operation)
        return operation

    def run(
        self,
        operation_id: str,
        *,
        who: str,
        on_progress: OnProgress,
        should_stop: Callable[[], bool],
    ) -> Operation:
        """Begin or go on here and now. What keeps it from going on pauses it, with that as its cause.

        :raises UnknownOperation: there is none with this id.
        :raises OperationError: it has ended, another process runs it, or it was made for another app or
            broker.
        """
        why_not = why_not_here(self.get(operation_id), self._home)
        if why_not:
            raise OperationError(why_not)
        with self._held(operation_id) as is_kept:
            if is_kept is None:
                raise OperationError(
                    f"Another process runs operation {operation_id}; if that has died, it can be "
                    f"resumed within {LEASE_S:g} seconds."
                )
            operation = self._move(operation_id, OperationState.RUNNING, who)
            try:
                run = self._redrive(operation, on_progress, lambda: should_stop() or not is_kept())
            except BaseException as error:
                # Else a worker would go on with what was to end here.
                with contextlib.suppress(StoreError, OperationError):
                    self._pause(operation_id, who, _cause_of(error))
                raise
            if is_kept() and run.operation.state is OperationState.RUNNING:
                return self._pause(operation_id, who, run.error or "stopped on request")
            return run.operation

    def carry_on(self, operation_id: str, should_stop: Callable[[], bool]) -> Run | None:
        """Begin or go on with it for whoever left it; None when somebody else does. What would keep each
        further try from going on pauses it, with that as its cause; other trouble may be gone at the next.

        :raises StoreError: the store failed.
        """
        with self._held(operation_id) as is_kept:
            operation = None if is_kept is None else self._store.operation(operation_id)
            if operation is None or is_kept is None or not self._may_carry_on(operation):
                return None
            if operation.state is OperationState.PLANNED:
                operation = self._move(operation_id, OperationState.RUNNING, operation.who)
            run = self._carried_on(operation, lambda: should_stop() or not is_kept())
            if run.error is not None and run.lasts and is_kept():
                return self._given_up(operation, run.error)
            return run

    def left(self) -> list[Operation]:
        """Operations that wait for a worker, or that somebody runs, the oldest first. Without those of
        another app on the same store."""
        found = reversed(self._store.operations(states=_WAITING))
        return [one for one in found if self._may_carry_on(one) and self._knows(one)]

    def resume(self, operation_id: str, *, who: str) -> Operation:
        """Let a worker go on with it."""
        return self._move(operation_id, OperationState.RUNNING, who)

    def pause(self, operation_id: str, *, who: str) -> Operation:
        """Stop it after the batch under way."""
        return self._pause(operation_id, who, f"paused by {who}")

    def cancel(self, operation_id: str, *, who: str) -> Operation:
        """End it after the batch under way."""
        return self._move(operation_id, OperationState.CANCELLED, who, f"cancelled by {who}")

    def get(self, operation_id: str) -> Operation:
        """The operation with this id.

        :raises UnknownOperation: there is none.
        """
        operation = self._store.operation(operation_id)
        if operation is None:
            raise UnknownOperation
        return operation

    def find(self, states: frozenset[OperationState], limit: int) -> list[Operation]:
        """Operations in one of ``states`` (none: in any), newest first."""
        return self._store.operations(states=states, limit=limit)

    @functools.cached_property
    def _home(self) -> Home:
        return home_of(self._app)

    def _may_carry_on(self, operation: Operation) -> bool:
        return is_left(operation) and why_not_here(operation, self._home) is None

    def _knows(self, operation: Operation) -> bool:
        other = operation.orders.repair.to_task
        tasks = [other] if other else self._store.count_by_task(operation.wanted)
        return not tasks or any(why_no_task(self._app, task) is None for task in tasks)

    def _redrive(
        self, operation: Operation, on_progress: OnProgress, should_stop: Callable[[], bool]
    ) -> Run:
        redrive = Redrive(self._means)
        return redrive.run(operation, on_progress=on_progress, should_stop=should_stop)

    def _carried_on(self, operation: Operation, should_stop: Callable[[], bool]) -> Run:
        try:
            return self._redrive(operation, lambda _progress: None, should_stop)
        except (StoreError, OperationError):
            raise
        except CeleryDLQError as error:
            return Run(operation, _cause_of(error), lasts=True)

    def _given_up(self, operation: Operation, cause: str) -> Run:
        with contextlib.suppress(OperationError):  # somebody has ended it meanwhile
            self._pause(operation.id, f"worker {self._host}", cause)
        return Run(self.get(operation.id), cause, lasts=True)

    @contextlib.contextmanager
    def _held(self, operation_id: str) -> Iterator[Callable[[], bool] | None]:
        """What says whether this process is still the one that runs it; None when it is not."""
        tenure = Tenure(lambda: self._store, f"operation.{operation_id}", self._holder)
        lease = tenure.prolong()
        if lease is None:
            yield None
            return
        try:
            with kept(tenure, lease) as is_kept:
                yield is_kept
        finally:
            with contextlib.suppress(StoreError):  # it ends by itself
                tenure.end()

    def _pause(self, operation_id: str, who: str, cause: str) -> Operation:
        return self._move(operation_id, OperationState.PAUSED, who, cause)

    def _move(self, operation_id: str, to: OperationState, who: str, cause: str = "") -> Operation:
        return self._store.move_operation(
            operation_id, to, who=who, cause=cause, now=self._clock.now()
        )


def is_left(operation: Operation) -> bool:
    """Whether it is a worker's to run, once nobody else does."""
    return operation.state is OperationState.RUNNING or (
        operation.state is OperationState.PLANNED and operation.detached
    )


def _cause_of(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return f"{type(error).__name__}: {error}".strip()
