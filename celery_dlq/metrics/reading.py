"""What the metrics of the store are made of."""

from __future__ import annotations

from dataclasses import dataclass

from celery_dlq.store.base import Measures


@dataclass(frozen=True)
class Reading:
    """What one look at store and disk gave."""

    measures: Measures
    #: Bytes; None when the spool cannot be read.
    spool: int | None
