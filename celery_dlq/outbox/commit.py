"""The open transaction of the sender's thread, in which a message may be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from celery_dlq.model.letter import DeadLetter


class OpenTransaction(Protocol):
    """A transaction of the user on the store's database."""

    def park(self, letter: DeadLetter) -> None:
        """Write ``letter`` in the transaction."""

    def after_commit(self, call: Callable[[], None]) -> None:
        """Make this call after the commit, and never after a rollback."""


def open_transaction(dlq: Any) -> OpenTransaction | None:
    """The open transaction of this thread; None without one."""
    return None
