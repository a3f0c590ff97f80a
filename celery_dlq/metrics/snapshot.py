"""The numbers of the store as they were a moment ago, so that whoever asks is answered at once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from celery_dlq.errors import CeleryDLQError

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds for which an answer is fresh, unless told otherwise.
FRESH_S = 10.0

#: Seconds after which a question is given up that nothing ends, such as one through a proxy that passes no
#: answer on. Its connection is lost, so that this must not be often.
GIVE_UP_S = 60.0


@dataclass(frozen=True)
class Snapshot(Generic[T]):
    """An answer of the store."""

    value: T
    #: Seconds since 1970, and seconds that it took.
    taken_at: float
    took_s: float


@dataclass(frozen=True)
class Look(Generic[T]):
    """What is known now."""

    #: The last answer; None when there was none yet.
    snapshot: Snapshot[T] | None
    #: Whether the store answers; None when it was not asked long enough ago to tell.
    up: bool | None


class Snapshots(Generic[T]):
    """Asks, one question at a time and on a thread of its own, when somebody looks and the last answer is
    no longer fresh.

    :param read: asks the store.
    :param patience_s: after so many seconds without an answer the store counts as down.
    :param fresh_s: seconds for which an answer is taken for the present.
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
        """What is known; waits at most ``wait_s`` seconds for a fresh answer."""
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
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever scrapes is to hear of it
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
            # Once, and not each time that somebody looks.
            expected = isinstance(error, CeleryDLQError)
            logger.error(
                "no numbers of the store: %s", trouble, exc_info=None if expected else error
            )
        self._trouble = trouble

    def _is_up(self) -> bool | None:
        if self._answered is not None and self._monotonic() - self._asked_at >= self._patience_s:
            return False
        return self._up
