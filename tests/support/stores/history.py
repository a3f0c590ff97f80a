"""The history of letters in tests: its bounds, and a change of a message."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from celery_dlq.store.base import Edit, HistoryBounds

if TYPE_CHECKING:
    from celery_dlq.store import Store


def all_before(moment: datetime) -> HistoryBounds:
    """Everything older than ``moment``."""
    return HistoryBounds(history=moment, arrivals=moment, audit=moment)


def edit(store: Store, task_id: str, *, at: datetime, body: bytes = b"[[],{},{}]") -> None:
    """Change the message of a letter."""
    before = store.letters.get(task_id).envelope
    changed = Edit(
        task_id=task_id, before=before, after=before.with_body(body), args=[], kwargs={},
        diff="-\n+", who="ann", at=at,
    )  # fmt: skip
    assert store.edits.save(changed)
