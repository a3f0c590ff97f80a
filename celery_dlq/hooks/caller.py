"""Calls one hook, in a thread of its own, with what waits for it in a bounded queue."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from celery_dlq.hooks.event import Event, EventHook, EventKind, Hook, Told
from celery_dlq.hooks.lookup import shown

logger = logging.getLogger(__name__)

#: Events that may wait for a hook, and bytes of message bodies in them.
QUEUE_SIZE, QUEUE_BYTES = 10_000, 64 << 20
#: Seconds between two complaints about the same hook; what goes wrong in between is counted.
COMPLAIN_S = 60.0


@dataclass(frozen=True)
class Waiting:
    """An event that waits to be told."""

    kind: EventKind
    at: datetime
    #: Makes its value, which may be a look into the store; None when there is nothing to tell any more.
    load: Callable[[], Told | None]
    #: Bytes that it keeps in memory.
    size: int = 0


class Caller:
    """Calls ``hook`` with one event after the other. Whatever the hook does, :meth:`put` returns at once."""

    #: It did not come to its end in time.
    _hangs: bool

    def __init__(
        self,
        hook: Hook,
        *,
        size: int = QUEUE_SIZE,
        most_bytes: int = QUEUE_BYTES,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.hook, self.name = hook, shown(hook)
        self._size, self._most_bytes, self._monotonic = size, most_bytes, monotonic
        #: Events that found no room, and calls that raised.
        self.dropped = self.failed = 0
        self._complained: dict[str, float] = {}
        self._begin()

    @property
    def waiting(self) -> int:
        """Events that are not told yet, the one under way included."""
        return len(self._events) + self._is_busy

    def put(self, event: Waiting) -> None:
        """Have ``event`` told, if there is room."""
        if self._pid != os.getpid():
            self._begin()  # forked: the thread is the parent's, and so is what waits
        with self._changed:
            has_room = len(self._events) < self._size and (
                not self._events or self._bytes + event.size <= self._most_bytes
            )
            if has_room:
                self._events.append(event)
                self._bytes += event.size
                self._ensure_started()
                self._changed.notify_all()
            else:
                self.dropped += 1
        if not has_room and self._may_complain("dropped"):
            logger.error(
                "hook %s is too slow: %d events wait and %d were not told; make it faster, or register "
                "it for something rarer", self.name, self.waiting, self.dropped,
            )  # fmt: skip

    def finish(self, until: float) -> None:
        """Return when nothing waits any more, or at ``until`` by the monotonic clock; what waits then is
        given up. A hook that has not come to its end once is not waited for again."""
        if self._pid != os.getpid() or self._hangs:
            return
        with self._changed:
            while self.waiting and (left_s := until - self._monotonic()) > 0:
                self._changed.wait(left_s)
            given_up = self.waiting
            self._hangs = given_up > 0
            self._events.clear()
            self._bytes = 0
        if given_up:
            logger.error(
                "hook %s took too long when its process had to end: %d events were not told",
                self.name, given_up,
            )  # fmt: skip

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._events: deque[Waiting] = deque()
        self._bytes = 0
        self._is_busy = False
        self._hangs = False
        self._thread: threading.Thread | None = None

    def _ensure_started(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name=f"dlq-hook-{self.name}", daemon=True
            )
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._events:
                    self._changed.wait()
                event = self._events.popleft()
                self._bytes -= event.size
                self._is_busy = True
            self._call(event)
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()

    def _call(self, waiting: Waiting) -> None:
        try:
            value = waiting.load()
            if value is None:
                return
            event = Event(kind=waiting.kind, at=waiting.at, value=value)
            if isinstance(self.hook, EventHook):
                self.hook(event)
            else:
                self.hook(value)
        except BaseException:  # a hook may raise anything, and the next event is another one
            self.failed += 1
            if self._may_complain("failed"):
                logger.exception(
                    "hook %s failed on %s, %d times so far",
                    self.name,
                    waiting.kind.value,
                    self.failed,
                )

    def _may_complain(self, about: str) -> bool:
        now = self._monotonic()
        may = now - self._complained.get(about, float("-inf")) >= COMPLAIN_S
        if may:
            self._complained[about] = now
        return may
