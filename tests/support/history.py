"""The bounds of history in tests."""

from __future__ import annotations

from datetime import datetime

from celery_dlq.store.base import HistoryBounds


def all_before(moment: datetime) -> HistoryBounds:
    """Everything older than ``moment``."""
    return HistoryBounds(history=moment, arrivals=moment, audit=moment)
