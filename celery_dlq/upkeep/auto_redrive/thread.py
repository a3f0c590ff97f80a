"""The worker's thread for automatic redrives."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from celery_dlq.redrive.context import app_and_broker_of
from celery_dlq.retry.backoff import Uniform, uniform
from celery_dlq.store.base import Lease
from celery_dlq.upkeep.leased import LeasedThread

#: Seconds between two looks by the worker with the lease, at least.
LOOK_S = 0.5


class AutoRedriveThread(LeasedThread):
    """Runs the automatic redrives of an app while it has the lease.

    :param wake: called when an operation was begun.
    """

    does = "automatic redrives"
    stopped = "automatic redrives do not run"
    again = "automatic redrives run again"

    def __init__(
        self, dlq: Any, holder: str, *, wake: Callable[[], object], draw: Uniform = uniform
    ) -> None:
        super().__init__(dlq, lease_of(dlq.app), holder, draw=draw)
        self._wake = wake

    def work(self, lease: Lease) -> float:
        """Begin the runs that are due, and end those that are over."""
        wait_s = float(self._dlq.auto_redrives.run(lease))
        self._wake()
        return max(LOOK_S, wait_s)


def lease_of(app: Any) -> str:
    """The name of the lease of the automatic redrives of ``app``. Apps that share a store have their own
    settings, and so their own leases."""
    here = app_and_broker_of(app)
    digest = hashlib.blake2b(f"{here.app}\0{here.broker}".encode(), digest_size=8)
    return f"auto.{digest.hexdigest()}"
