"""The bases of the worker's threads for upkeep. They work in rounds. An error ends only its round."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from celery.utils.log import get_logger

from celery_dlq.errors import CeleryDLQError, StoreError
from celery_dlq.retry.policy import Uniform, uniform
from celery_dlq.store.base import Lease
from celery_dlq.store.tenure import TRY_S, Tenure

logger: logging.Logger = get_logger(__name__)

T = TypeVar("T")

#: Seconds after which a worker without the lease asks for it again, at most.
IDLE_S = 15.0


class GuardedThread(threading.Thread, ABC):
    """Logs the errors of its work.

    :param dlq: the app's :class:`~celery_dlq.api.queue.DeadLetterQueue`.
    """

    #: The work, for the thread's name and the log.
    does: ClassVar[str]
    #: The work that an error stops, and the work that continues after it; for the log.
    text_stopped: ClassVar[str]
    text_resumed: ClassVar[str]

    def __init__(self, dlq: Any) -> None:
        super().__init__(name=f"dlq-{self.does.replace(' ', '-')}", daemon=True)
        self.stopping: threading.Event = threading.Event()
        self._dlq, self._health, self._trouble = dlq, dlq.store_health, ""

    def stop(self) -> None:
        """End after the current round."""
        self.stopping.set()

    def guarded(self, work: Callable[[], T]) -> T | None:
        """The result of ``work``; None if it raised an error, which is logged."""
        try:
            result = work()
        except StoreError as error:
            self._health.fails(self.does, error)
            return None
        except CeleryDLQError as error:
            self.log_once(str(error))
            return None
        except Exception:
            logger.exception("celery_dlq: %s failed unexpectedly", self.does)
            return None
        self._health.works(self.does)
        return result

    def log_once(self, trouble: str) -> None:
        """Log an obstacle, unless an earlier round has logged it. An empty text logs that the obstacle is
        gone."""
        if trouble and trouble != self._trouble:
            logger.error("%s: %s", self.text_stopped, trouble)
        elif self._trouble and not trouble:
            logger.info("%s", self.text_resumed)
        self._trouble = trouble


class Periodic(GuardedThread):
    """Works in rounds until it is stopped."""

    def __init__(self, dlq: Any) -> None:
        super().__init__(dlq)
        self._woken = threading.Event()

    @abstractmethod
    def pause_s(self) -> float:
        """Seconds until the next round."""

    @abstractmethod
    def round(self) -> None:
        """One round. Its errors are logged."""

    def end(self) -> None:
        """Called after the last round."""

    def wake(self) -> None:
        """Begin the next round now."""
        self._woken.set()

    def stop(self) -> None:
        """End after the current round."""
        super().stop()
        self._woken.set()

    def run(self) -> None:
        """Work until stopped."""
        while not self._rest(self.pause_s()):
            self.guarded(self.round)
        self.end()

    def _rest(self, seconds: float) -> bool:
        """Wait for the next round, at most this long; returns whether the thread is to stop."""
        self._woken.wait(seconds)
        self._woken.clear()
        return self.stopping.is_set()


class Leased(Periodic):
    """Works while this worker has a lease; otherwise it waits for the lease.

    :param lease: its name.
    :param holder: identifies this worker among all.
    :param draw: random waits, so that workers do not ask for the same lease at the same moment.
    """

    def __init__(self, dlq: Any, lease: str, holder: str, *, draw: Uniform = uniform) -> None:
        super().__init__(dlq)
        self._tenure = Tenure(lambda: dlq.store, lease, holder)
        self._draw, self._pause_s = draw, 0.0

    @abstractmethod
    def work(self, lease: Lease) -> float:
        """One round under the lease; returns the seconds until the next, which prolongs it."""

    def pause_s(self) -> float:
        """Seconds until the next round, or until the lease may be free."""
        return self._pause_s

    def round(self) -> None:
        """Take or prolong the lease, and work under it."""
        self._pause_s = TRY_S  # after an error
        self._pause_s = self._try()
        self.log_once("")

    def end(self) -> None:
        """Give up the lease, so that another worker can continue at once."""
        try:
            self._tenure.end()
        except Exception as error:  # noqa: BLE001 - the lease ends by itself
            logger.warning("the lease of %s could not be given up: %s", self.does, error)

    def wait_for_lease_s(self) -> float:
        """Seconds until this worker asks for the lease; 0 if the lease may be free now."""
        if self._tenure.is_held:
            return 0.0
        return self.until_free_s(self._tenure.to_do().lease_free_in_s)

    def until_free_s(self, free_in_s: float) -> float:
        """Seconds until soon after the lease ends, unless it is prolonged."""
        return min(IDLE_S, free_in_s) + self._draw(0.0, TRY_S) if free_in_s > 0 else 0.0

    def _try(self) -> float:
        wait_s = self.wait_for_lease_s()
        if wait_s > 0:
            return wait_s
        lease = self._tenure.prolong()
        return TRY_S if lease is None else self.work(lease)
