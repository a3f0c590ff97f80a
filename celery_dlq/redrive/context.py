"""The dependencies of a redrive."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from celery_dlq.base.redact import Redactor
from celery_dlq.settings import Settings

if TYPE_CHECKING:
    from celery_dlq.store import Store


@dataclass(frozen=True)
class Clock:
    """The time, and how to wait."""

    #: The time by the store's clock, which redrives and workers on all machines share.
    now: Callable[[], datetime]
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep


@dataclass(frozen=True, kw_only=True)
class RedriveContext:
    """An app, its store, and the other dependencies of a redrive."""

    app: Any
    store: Store
    settings: Settings
    redactor: Redactor
    #: Whether workers report the outcomes of a task's messages.
    reports: Callable[[str], bool]
    clock: Clock
    #: Whether each redrive becomes a request for a second person.
    proposes: bool = False
