"""Runs the automations of an app: each chooses letters by its filter, within its limits, and acts."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from celery.utils.log import get_logger

from celery_dlq.base.known import unknown_task
from celery_dlq.errors import HandlerError, OperationError
from celery_dlq.model.automation import AutoStatus, actor_of, auto_of
from celery_dlq.model.handling import may_have_letters
from celery_dlq.model.operation import ENDED, OperationState
from celery_dlq.redrive.context import RedriveContext
from celery_dlq.redrive.operation import Operations, app_and_broker_of
from celery_dlq.retry.policy import Uniform, uniform
from celery_dlq.store.base import Lease, Operation
from celery_dlq.store.tenure import TRY_S
from celery_dlq.upkeep.automation import conditions
from celery_dlq.upkeep.automation.definition import AutoRedrive, Handler
from celery_dlq.upkeep.automation.dispatcher import Dispatcher
from celery_dlq.upkeep.automation.redriver import Look, Redriver
from celery_dlq.upkeep.periodic import Leased

logger: logging.Logger = get_logger(__name__)

T = TypeVar("T")

#: Seconds between two looks by the worker with the lease, at least.
LOOK_S = 0.5


class Engine:
    """The automations of an app.

    The settings name the automatic redrives in the order in which they come first; handlers come in the order
    of their registration. All must be loaded: the repairs of the app that they name are looked up.

    :raises SettingsError: a definition does not fit the app.
    """

    def __init__(
        self, context: RedriveContext, operations: Operations, handlers: Mapping[str, Handler]
    ) -> None:
        self._store, self._now = context.store, context.clock.now
        self.autos: dict[str, AutoRedrive] = {
            auto.name: auto for auto in context.settings.auto_redrive
        }
        self._handlers = handlers
        self._redriver = Redriver(context, operations, self.autos)
        self._dispatcher = Dispatcher(context, operations, handlers)
        conditions.check_definitions(context.app, context.settings, handlers)

    def run(self, lease: Lease, prolong: Callable[[], Lease | None]) -> float:
        """Give each automation its turn; returns the seconds until the next round.

        :raises StoreError: the store failed.
        :raises HandlerError: the broker does not accept the messages of a handler. The others had their turn.
        """
        statuses = self._store.automations.statuses()
        for operation_id in self._store.automations.unfinished():
            operation = self._store.operations.get(operation_id)
            # Also those that no worker runs.
            if operation is not None and operation.state not in ENDED:
                self._stop(operation, statuses)
        waits_s, unsent = [TRY_S], list[HandlerError]()
        for handler in _active(self._handlers, statuses):
            try:
                waits_s.append(self._dispatcher.turn(handler, lease))
            except HandlerError as error:
                unsent.append(error)
            if prolong() != lease:
                return 0.0
        for auto in _active(self.autos, statuses):
            status = statuses.get(auto.name, AutoStatus(name=auto.name))
            waits_s.append(self._redriver.turn(auto, status, lease))
        if unsent:
            raise unsent[0]
        return min(waits_s)

    def look(self, name: str) -> Look:
        """The look that the automatic redrive ``name`` would have now. Nothing is sent or changed.

        :raises StoreError: the store failed.
        """
        return self._redriver.look(self.autos[name], self._now())

    def must_stop(self, operation: Operation) -> bool:
        """Whether a running operation may send nothing more because it belongs to an automation whose
        conditions no longer hold. If so, it is cancelled: letters that were not sent stay dead, and are
        chosen again.

        :raises StoreError: the store failed.
        """
        return self._stop(operation, self._store.automations.statuses())

    def _stop(self, operation: Operation, statuses: dict[str, AutoStatus]) -> bool:
        """Cancel an operation if it may send nothing more; returns whether it may not."""
        name = auto_of(operation.who)
        if not name:
            return False
        why = conditions.why_stopped(statuses, name)
        # The worker that began it may have other settings.
        auto = self.autos.get(name)
        if auto is not None and not why:
            why = conditions.why_not_now(self._store, auto, operation, self._now())
        if why:
            # It may just have ended in another way.
            with contextlib.suppress(OperationError):
                self._store.operations.move(
                    operation.id, OperationState.CANCELLED,
                    who=actor_of(name), cause=why, now=self._now(),
                )  # fmt: skip
        return bool(why)


def _active(known: Mapping[str, T], statuses: dict[str, AutoStatus]) -> list[T]:
    """The automations that are not stopped."""
    return [one for name, one in known.items() if not conditions.why_stopped(statuses, name)]


class AutomationThread(Leased):
    """Runs the automations of an app while it has the lease.

    :param wake: called when an operation may have begun.
    """

    does = "automations"
    text_stopped = "not all automations run"
    text_resumed = "all automations run again"

    def __init__(
        self, dlq: Any, holder: str, *, wake: Callable[[], object], draw: Uniform = uniform
    ) -> None:
        super().__init__(dlq, lease_of(dlq.app), holder, draw=draw)
        self._wake = wake

    def work(self, lease: Lease) -> float:
        """Give the automations their turns, and run what they have begun."""
        wait_s = float(self._dlq.automations.run(lease, self._tenure.prolong))
        self._wake()
        return max(LOOK_S, wait_s)


def warn_of_unknown_tasks(app: Any) -> None:
    """Log the handlers whose filter names a task that the app does not have. Letters of such a task may still
    be in the store, so this is not an error."""
    for handler in app.dead_letter_queue.handlers.values():
        unknown = unknown_task(handler.where.task, filter(may_have_letters, app.tasks))
        if unknown:
            logger.warning("handler %s: %s", handler.name, unknown)


def lease_of(app: Any) -> str:
    """The name of the lease of the automations of ``app``. Apps that share a store have their own
    automations, and so their own leases."""
    here = app_and_broker_of(app)
    digest = hashlib.blake2b(f"{here.app}\0{here.broker}".encode(), digest_size=8)
    return f"auto.{digest.hexdigest()}"
