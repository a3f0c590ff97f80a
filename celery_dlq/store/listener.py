"""Listeners: a store notifies them of everything that it has written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from celery_dlq.model.audit import AuditHead
from celery_dlq.model.automation import AutoStatus
from celery_dlq.store.base import Operation, Saved


class StoreListener:
    """Notified after the commit, in the thread that wrote. A method must return at once and raise
    nothing. The methods of this class do nothing."""

    def saved(self, saved: Saved) -> None:
        """Failures are stored."""

    def resolved(self, task_ids: Sequence[str]) -> None:
        """Letters are resolved: their messages succeeded."""

    def redriven(self, task_ids: Sequence[str]) -> None:
        """Letters were redriven: the broker has confirmed their messages."""

    def moved(self, operation: Operation) -> None:
        """An operation was moved to another state."""

    def suspended(self, status: AutoStatus) -> None:
        """An automatic redrive has suspended itself."""

    def audited(self, head: AuditHead) -> None:
        """The audit was written; its chain has a new head."""


class Notes(StoreListener):
    """Collects notifications in one process, for a listener in another. Can be pickled."""

    def __init__(self) -> None:
        self._noted: list[tuple[str, Any]] = []

    def saved(self, saved: Saved) -> None:
        self._noted.append(("saved", saved))

    def resolved(self, task_ids: Sequence[str]) -> None:
        self._noted.append(("resolved", task_ids))

    def redriven(self, task_ids: Sequence[str]) -> None:
        self._noted.append(("redriven", task_ids))

    def moved(self, operation: Operation) -> None:
        self._noted.append(("moved", operation))

    def suspended(self, status: AutoStatus) -> None:
        self._noted.append(("suspended", status))

    def audited(self, head: AuditHead) -> None:
        self._noted.append(("audited", head))

    def take(self, *, letters: bool) -> Notes:
        """These notifications, which are removed from this object.

        :param letters: whether the listener wants the letters of :meth:`saved`, which are large.
        """
        taken, noted = Notes(), self._noted
        if not letters:
            noted = [
                (event, replace(what, letters=()) if isinstance(what, Saved) else what)
                for event, what in noted
            ]
        taken._noted, self._noted = noted, []
        return taken

    def notify(self, listener: StoreListener) -> None:
        """Notify ``listener`` of all of them."""
        for event, what in self._noted:
            getattr(listener, event)(what)
