"""What operations are made and carried out with."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from celery_dlq.redact import Redactor
from celery_dlq.settings import Settings
from celery_dlq.store.base import Store


@dataclass(frozen=True)
class Clock:
    """Time, and a wait."""

    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep


@dataclass(frozen=True, kw_only=True)
class Means:
    """An app, its store, and what else a redrive needs of it."""

    app: Any
    store: Store
    settings: Settings
    redactor: Redactor
    #: Whether a worker reports what becomes of a task's messages.
    reports: Callable[[str], bool]
    clock: Clock = field(default_factory=Clock)
