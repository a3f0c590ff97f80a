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
    """What is told in one process, for a listener in another. Can be pickled."""

    def __init__(self) -> None:
        self._told: list[tuple[str, Any]] = []

    def saved(self, saved: Saved) -> None:
        self._told.append(("saved", saved))

    def resolved(self, task_ids: Sequence[str]) -> None:
        self._told.append(("resolved", task_ids))

    def redriven(self, task_ids: Sequence[str]) -> None:
        self._told.append(("redriven", task_ids))

    def moved(self, operation: Operation) -> None:
        self._told.append(("moved", operation))

    def take(self, *, letters: bool) -> Notes:
        """These notes, which are forgotten here.

        :param letters: whether the listener wants the letters of :meth:`saved`. It would cost to send
            over what nobody wants.
        """
        taken, told = Notes(), self._told
        taken._told = told if letters else [(event, _without_letters(what)) for event, what in told]
        self._told = []
        return taken

    def tell(self, listener: StoreListener) -> None:
        """Tell ``listener`` all of them."""
        for event, what in self._told:
            getattr(listener, event)(what)


def _without_letters(what: Any) -> Any:
    return replace(what, letters=()) if isinstance(what, Saved) else what


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
