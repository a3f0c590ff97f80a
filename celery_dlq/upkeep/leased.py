"""The base of the threads that work in one worker only: in the one that holds their lease."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from celery.utils.log import get_logger

from celery_dlq.redrive.lease import TRY_S, Tenure
from celery_dlq.retry.backoff import Uniform, uniform
from celery_dlq.store.base import Lease
from celery_dlq.upkeep.guarded import GuardedThread

logger = get_logger(__name__)

#: Seconds after which a worker without the lease asks for it again, at most.
IDLE_S = 15.0


class LeasedThread(GuardedThread):
    """Works while this worker has the lease; otherwise it waits for the lease.

    :param lease: the name of the lease.
    :param holder: identifies this worker among all.
    :param draw: random waits, so that workers do not ask for the same lease at the same moment.
    """

    def __init__(self, dlq: Any, lease: str, holder: str, *, draw: Uniform = uniform) -> None:
        super().__init__(dlq)
        self._draw, self._tenure = draw, Tenure(lambda: dlq.store, lease, holder)

    def stop(self) -> None:
        """End after the current round."""
        self.stopping.set()

    def run(self) -> None:
        """Work until stopped; then give up the lease, so that another worker can continue at once."""
        wait_s = 0.0
        while not self.stopping.wait(wait_s):
            wait_s = self._try()
        try:
            self._tenure.end()
        except Exception as error:  # noqa: BLE001 - the lease ends by itself
            logger.warning("the lease of %s could not be given up: %s", self.does, error)

    @abstractmethod
    def work(self, lease: Lease) -> float:
        """One round under the lease; returns the seconds until the next, which prolongs it."""

    def wait_for_lease_s(self) -> float:
        """Seconds until this worker asks for the lease; 0 if it may have it now."""
        if self._tenure.is_held:
            return 0.0
        free_in_s: float = self._dlq.store.leases.to_do(self._tenure.name).lease_free_in_s
        return self.until_free_s(free_in_s)

    def until_free_s(self, free_in_s: float) -> float:
        """Seconds until soon after the lease ends, unless it is prolonged."""
        return min(IDLE_S, free_in_s) + self._draw(0.0, TRY_S) if free_in_s > 0 else 0.0

    def _try(self) -> float:
        """One round; returns the seconds until the next."""
        wait_s = self.guarded(self._round)
        if wait_s is None:
            return TRY_S
        self.log_once("")
        return wait_s

    def _round(self) -> float:
        wait_s = self.wait_for_lease_s()
        if wait_s > 0:
            return wait_s
        lease = self._tenure.prolong()
        return TRY_S if lease is None else self.work(lease)
