"""Calls one hook, in a thread of its own, with the events in a bounded queue."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from celery_dlq.base.redact import Redactor
from celery_dlq.hooks.event import Event, EventHook, EventKind, EventValue, Hook, route_of, shown

logger: logging.Logger = logging.getLogger(__name__)

#: The most events that may wait for a hook, and the most bytes of message bodies in them.
QUEUE_SIZE, QUEUE_BYTES = 10_000, 64 << 20
#: Seconds between two log lines about the same hook; problems in between are counted.
COMPLAIN_S = 60.0


@dataclass(frozen=True)
class Waiting:
    """An event that waits for its hook."""

    kind: EventKind
    at: datetime
    #: Makes its value. It may read the store. None if there is no longer anything to announce.
    load: Callable[[], EventValue | None]
    #: Bytes that it takes in memory.
    size: int = 0
    #: The route of the letter or group, whose hooks are called, too.
    route: str = ""


class Caller:
    """Calls ``hook`` with one event after the other. :meth:`put` returns at once, whatever the hook
    does."""

    #: The hook did not finish in time.
    _hangs: bool

    def __init__(
        self,
        hook: Hook,
        *,
        size: int = QUEUE_SIZE,
        most_bytes: int = QUEUE_BYTES,
        redactor: Redactor | None = None,
        owner_of: Callable[[str], str] = lambda _route: "",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._redactor, self._owner_of = redactor or Redactor(), owner_of
        self.hook = hook
        self.name: str = shown(hook)
        self._size, self._most_bytes, self._monotonic = size, most_bytes, monotonic
        #: Events that did not fit into the queue, and calls that raised.
        self.dropped: int = 0
        self.failed: int = 0
        self._complained: dict[str, float] = {}
        self._begin()

    @property
    def waiting(self) -> int:
        """Events that are waiting, including the current one."""
        return len(self._events) + self._is_busy

    def put(self, event: Waiting) -> None:
        """Put ``event`` into the queue, if it fits."""
        if self._pid != os.getpid():
            self._begin()  # forked: the thread and the waiting events belong to the parent
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
                "hook %s is too slow: %d events wait and %d were dropped; make it faster, or register "
                "it for a rarer event", self.name, self.waiting, self.dropped,
            )  # fmt: skip

    def finish(self, until: float) -> None:
        """Return when the queue is empty and the thread has ended, or at ``until`` by the monotonic
        clock; then the waiting events are dropped. A hook that once did not finish in time is not
        waited for again. The next event starts another thread."""
        if self._pid != os.getpid() or self._hangs:
            return
        with self._changed:
            while self.waiting and (left_s := until - self._monotonic()) > 0:
                self._changed.wait(left_s)
            given_up = self.waiting
            self._hangs = given_up > 0
            self._events.clear()
            self._bytes = 0
            self._is_ending, thread = True, self._thread
            self._changed.notify_all()
        if thread is not None and not given_up:
            thread.join(max(0.0, until - self._monotonic()))
        if given_up:
            logger.error(
                "hook %s took too long when its process had to end: %d events were dropped",
                self.name, given_up,
            )  # fmt: skip

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._events: deque[Waiting] = deque()
        self._bytes = 0
        self._is_busy = False
        self._hangs = False
        self._is_ending = False
        self._thread: threading.Thread | None = None

    def _ensure_started(self) -> None:
        self._is_ending = False
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name=f"dlq-hook-{self.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no thread to spare
            logger.error(  # noqa: TRY400
                "the thread of hook %s cannot start (%s); its events wait until the next event comes",
                self.name, error,
            )  # fmt: skip
        else:
            self._thread = thread

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._events:
                    if self._is_ending:
                        self._thread = None
                        return
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
            if isinstance(self.hook, EventHook):
                owner = self._owner_of(route_of(value))
                event = Event(
                    kind=waiting.kind, at=waiting.at, value=value, route_owner=owner,
                    redactor=self._redactor,
                )  # fmt: skip
                self.hook(event)
            else:
                self.hook(value)
        except (
            BaseException
        ):  # a hook may raise anything, and the next event must still be announced
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
