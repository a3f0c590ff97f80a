"""A recent snapshot of the store's numbers, so that a scrape is answered at once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from celery_dlq.errors import CeleryDLQError
from celery_dlq.model.worker import Lost
from celery_dlq.store.base import Measures
from celery_dlq.store.keeping import Keeping

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds for which an answer is fresh by default.
FRESH_S = 10.0

#: Seconds after which a question without any answer is given up, for example behind a proxy that passes
#: nothing on. Its connection is lost, so this must be rare.
GIVE_UP_S = 60.0


@dataclass(frozen=True)
class Reading:
    """The numbers from one reading of the store and the spool."""

    measures: Measures
    keeping: Keeping
    lost: Lost
    #: Bytes in the spool; None if it cannot be read.
    spool: int | None
    #: Seconds by which the store's clock is ahead of this machine's.
    ahead_s: float = 0.0


@dataclass(frozen=True)
class Snapshot(Generic[T]):
    """An answer of the store."""

    value: T
    #: Seconds since 1970, and seconds that it took.
    taken_at: float
    took_s: float


@dataclass(frozen=True)
class Look(Generic[T]):
    """The last answer of the store, and whether it answers now."""

    #: The last answer; None if the store has not answered yet.
    snapshot: Snapshot[T] | None
    #: Whether the store answers; None if it was asked so recently that its answer may still come.
    up: bool | None


class Snapshots(Generic[T]):
    """Asks the store when the numbers are needed and the last answer is no longer fresh: one question at a
    time, on a thread of its own.

    :param read: asks the store.
    :param patience_s: after this many seconds without an answer the store counts as down.
    :param fresh_s: seconds for which an answer is fresh.
    """

    def __init__(
        self,
        read: Callable[[], T],
        *,
        patience_s: float,
        fresh_s: float = FRESH_S,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._patience_s, self._fresh_s = read, patience_s, fresh_s
        self._clock, self._monotonic = clock, monotonic
        self._lock = threading.Lock()
        self._last: Snapshot[T] | None = None
        self._up: bool | None = None
        self._asked_at = self._answered_at = float("-inf")
        self._answered: threading.Event | None = None
        self._trouble = ""

    def look(self, wait_s: float) -> Look[T]:
        """The last answer, and whether the store answers now; waits at most ``wait_s`` seconds for a fresh
        answer."""
        with self._lock:
            under_way = self._answered
            if under_way is not None and self._monotonic() - self._asked_at >= GIVE_UP_S:
                under_way, self._up, self._answered_at = None, False, float("-inf")
            if under_way is None and self._monotonic() - self._answered_at >= self._fresh_s:
                under_way = self._ask()
        if under_way is not None and wait_s > 0:
            under_way.wait(wait_s)
        with self._lock:
            return Look(self._last, self._is_up())

    def now(self) -> float:
        """Seconds since 1970, by the clock of the snapshots."""
        return self._clock()

    def _ask(self) -> threading.Event:
        answered = self._answered = threading.Event()
        self._asked_at = self._monotonic()
        threading.Thread(
            target=self._take, args=(answered,), name="dlq-snapshot", daemon=True
        ).start()
        return answered

    def _take(self, answered: threading.Event) -> None:
        began = self._monotonic()
        try:
            value = self._read()
        except Exception as error:  # noqa: BLE001 - the scrape must report it, whatever it is
            self._note(answered, None, error)
        else:
            self._note(answered, Snapshot(value, self._clock(), self._monotonic() - began), None)
        finally:
            answered.set()

    def _note(
        self, answered: threading.Event, snapshot: Snapshot[T] | None, error: Exception | None
    ) -> None:
        with self._lock:
            if self._answered is not answered:  # given up
                return
            self._last = snapshot or self._last
            self._up = snapshot is not None
            self._answered, self._answered_at = None, self._monotonic()
        trouble = "" if error is None else str(error) or type(error).__name__
        if trouble and trouble != self._trouble:
            # Once, not at each scrape.
            expected = isinstance(error, CeleryDLQError)
            logger.error(
                "no numbers of the store: %s", trouble, exc_info=None if expected else error
            )
        self._trouble = trouble

    def _is_up(self) -> bool | None:
        if self._answered is not None and self._monotonic() - self._asked_at >= self._patience_s:
            return False
        return self._up
