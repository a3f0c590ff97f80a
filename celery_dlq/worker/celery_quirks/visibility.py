"""The brokers with a visibility timeout."""

from __future__ import annotations

from typing import Any

from celery_dlq.worker.celery_quirks.unacked import Unacknowledged
from celery_dlq.worker.celery_quirks.unacked_redis import OnRedis
from celery_dlq.worker.celery_quirks.unacked_sqs import OnSQS


def kind_of(channel: Any) -> type[Unacknowledged] | None:
    """The class for the messages that ``channel`` has received and not acknowledged; None if the broker gives
    them back by itself when a worker is gone."""
    kinds: tuple[type[Unacknowledged], ...] = OnRedis, OnSQS
    return next((kind for kind in kinds if kind.is_on(channel)), None)
