"""Makes events from a store's notes about its writes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial

from celery_dlq.hooks.caller import Waiting
from celery_dlq.hooks.event import EventKind, EventValue, route_of
from celery_dlq.hooks.registry import Hooks
from celery_dlq.model.audit import AuditHead
from celery_dlq.model.automation import AutoStatus
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.operation import OperationState
from celery_dlq.model.worker import Stall
from celery_dlq.store.base import Operation, Saved
from celery_dlq.store.listener import StoreListener

logger: logging.Logger = logging.getLogger(__name__)


class Announcer(StoreListener):
    """Calls an app's hooks.

    :param read: reads a letter from the store, by its task id; called on the thread of a hook.
    """

    def __init__(
        self,
        hooks: Hooks,
        read: Callable[[str], DeadLetter | None],
        now: Callable[[], datetime],
    ) -> None:
        self._hooks, self._now = hooks, now
        self._read = read

    def saved(self, saved: Saved) -> None:
        """Announce letters that arrived, and groups that they made or opened again."""
        with _guarded():
            for group in saved.new_groups:
                self._tell(EventKind.NEW_GROUP, group)
            for group in saved.regressed_groups:
                self._tell(EventKind.REGRESSION, group)
            for letter in saved.letters if self._hooks.wants(EventKind.DEAD_LETTER) else ():
                self._tell(EventKind.DEAD_LETTER, letter, size=len(letter.envelope.body))

    def resolved(self, task_ids: Sequence[str]) -> None:
        """Announce letters whose messages succeeded."""
        self._tell_of(EventKind.RESOLVED, task_ids)

    def redriven(self, task_ids: Sequence[str]) -> None:
        """Announce letters that were sent back."""
        self._tell_of(EventKind.REDRIVEN, task_ids)

    def moved(self, operation: Operation) -> None:
        """Announce an operation that was aborted."""
        with _guarded():
            if operation.state is OperationState.ABORTED:
                self._tell(EventKind.OPERATION_ABORTED, operation)

    def suspended(self, status: AutoStatus) -> None:
        """Announce an automatic redrive that has suspended itself."""
        with _guarded():
            self._tell(EventKind.AUTO_REDRIVE_SUSPENDED, status)

    def audited(self, head: AuditHead) -> None:
        """Announce the new head of the audit's chain."""
        with _guarded():
            self._tell(EventKind.AUDIT, head)

    def stalled(self, stall: Stall) -> None:
        """Announce that a worker of this process is stalled. The store plays no part in that."""
        with _guarded():
            self._tell(EventKind.WORKER_STALLED, stall)

    def _tell(self, kind: EventKind, value: EventValue, *, size: int = 0) -> None:
        self._hooks.tell(Waiting(kind, self._now(), lambda: value, size, route_of(value)))

    def _tell_of(self, kind: EventKind, task_ids: Sequence[str]) -> None:
        with _guarded():
            if not task_ids or not self._hooks.wants(kind):
                return
            now = self._now()
            for task_id in task_ids:
                # The letter is read just before the call, so that waiting events take little memory.
                self._hooks.tell(Waiting(kind, now, partial(self._read, task_id)))


@contextlib.contextmanager
def _guarded() -> Iterator[None]:
    """Log errors of announcing, which must not affect the write: it is done."""
    try:
        yield
    except Exception:
        logger.exception("hooks could not be called")
