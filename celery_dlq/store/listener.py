"""Who hears what a store has written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from celery_dlq.store.base import Operation, Saved


class StoreListener(Protocol):
    """Told after the commit, in the thread that wrote. Returns at once, and raises nothing."""

    def saved(self, saved: Saved) -> None:
        """Failures are stored."""

    def resolved(self, task_ids: Sequence[str]) -> None:
        """Letters are resolved: their messages succeeded."""

    def redriven(self, task_ids: Sequence[str]) -> None:
        """The broker has the messages of letters again."""

    def moved(self, operation: Operation) -> None:
        """An operation is in another state, or was moved to the one in which it is."""


class Notes:
    """What is told in one process, for a listener in another. Can be pickled.

    :param letters: whether the listener wants the letters of :meth:`saved`.
    """

    def __init__(self, *, letters: bool) -> None:
        self._letters = letters
        self._told: list[tuple[str, Any]] = []

    def saved(self, saved: Saved) -> None:
        self._told.append(("saved", saved if self._letters else replace(saved, letters=())))

    def resolved(self, task_ids: Sequence[str]) -> None:
        self._told.append(("resolved", task_ids))

    def redriven(self, task_ids: Sequence[str]) -> None:
        self._told.append(("redriven", task_ids))

    def moved(self, operation: Operation) -> None:
        self._told.append(("moved", operation))

    def take(self) -> Notes:
        """These notes, which are forgotten here."""
        taken = Notes(letters=self._letters)
        taken._told, self._told = self._told, []
        return taken

    def tell(self, listener: StoreListener) -> None:
        """Tell ``listener`` all of them."""
        for event, what in self._told:
            getattr(listener, event)(what)


class Nobody:
    """Where nobody listens."""

    def saved(self, saved: Saved) -> None:
        pass

    def resolved(self, task_ids: Sequence[str]) -> None:
        pass

    def redriven(self, task_ids: Sequence[str]) -> None:
        pass

    def moved(self, operation: Operation) -> None:
        pass
