"""The base of the worker's threads for upkeep: no error ends them."""

from __future__ import annotations

import threading
from abc import ABC
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from celery.utils.log import get_logger

from celery_dlq.errors import CeleryDLQError, StoreError

logger = get_logger(__name__)

T = TypeVar("T")


class GuardedThread(threading.Thread, ABC):
    """Works in rounds. An error ends a round, and not the thread.

    :param dlq: the app's :class:`~celery_dlq.api.queue.DeadLetterQueue`.
    """

    #: The work, for the thread's name and the log.
    does: ClassVar[str]
    #: What an error stops, and what goes on after it; for the log.
    stopped: ClassVar[str]
    again: ClassVar[str]

    def __init__(self, dlq: Any) -> None:
        super().__init__(name=f"dlq-{self.does.replace(' ', '-')}", daemon=True)
        self.stopping = threading.Event()
        self._dlq, self._trouble = dlq, ""

    def guarded(self, work: Callable[[], T]) -> T | None:
        """The result of ``work``; None if it raised an error, which is logged."""
        try:
            result = work()
        except StoreError as error:
            self._dlq.store_health.fails(self.does, error)
            return None
        except CeleryDLQError as error:
            self.log_once(str(error))
            return None
        except Exception:
            logger.exception("celery_dlq: %s failed unexpectedly", self.does)
            return None
        self._dlq.store_health.works(self.does)
        return result

    def log_once(self, trouble: str) -> None:
        """Log an obstacle, or with an empty text its end, unless that was logged in an earlier round."""
        if trouble and trouble != self._trouble:
            logger.error("%s: %s", self.stopped, trouble)
        elif self._trouble and not trouble:
            logger.info("%s", self.again)
        self._trouble = trouble
