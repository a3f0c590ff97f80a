"""Records and questions that wait for the writer's thread, which takes them in batches.

A transaction costs milliseconds, however small it is, and the writer's thread takes this time from the event
loop. So in a storm of failures a batch is gathered; a letter that comes alone is written at once.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from celery_dlq.model.letter import DeadLetter
from celery_dlq.spool import Record

if TYPE_CHECKING:
    from celery_dlq.store import Store


#: Seconds for which a batch is gathered in a storm, and seconds without a further letter that end it sooner.
GATHER_S, QUIET_S = 0.25, 0.05
#: ``QUIET_S`` for a letter whose message is acknowledged only once the letter is safe. Until then, it takes
#: up a place of the prefetch limit, so that no other message may come, however long the wait is.
HELD_QUIET_S = 0.004
#: Seconds after a write in which the next letter counts as part of a storm.
STORM_S = 0.5
#: The most bytes of bodies that may wait for the store, and that one transaction writes. Ten thousand letters
#: of 50 MB would not fit in memory.
QUEUE_BYTES, BATCH_BYTES = 256 << 20, 16 << 20


@dataclass(frozen=True)
class Entry:
    """A record to write."""

    record: Record
    #: Called on the writer's thread once the record is safe.
    safe: Callable[[], object]
    #: Seconds without a further item after which it is written.
    quiet_s: float

    @property
    def size(self) -> int:
        """Bytes of the message's body."""
        return len(self.record.envelope.body) if isinstance(self.record, DeadLetter) else 0


@dataclass(frozen=True)
class Question:
    """A question to the store."""

    #: Gets the subjects of all questions of its kind, and returns the answers in that order. Questions of one
    #: kind have the same function.
    put_to: Callable[[Store, Sequence[Any]], Sequence[Any]]
    about: Any
    #: Called on the writer's thread with the answer, or None.
    answered: Callable[[Any], object]
    #: Whether it is put together with others of its kind, and before the waiting records are written.
    together: bool = False

    size: ClassVar[int] = 0

    @property
    def quiet_s(self) -> float:
        """Seconds without a further item after which it is put."""
        # A message that waits for an answer takes up a place of the prefetch limit, too.
        return HELD_QUIET_S if self.together else 0.0


class Wake:
    """An item that only wakes the thread."""

    quiet_s, size = 0.0, 0


Item: TypeAlias = Entry | Question | Wake


class Inbox:
    """Accepts items from any thread; the writer's thread takes them out in batches.

    :param size: items that may wait before it :meth:`is_full`.
    :param batch_size: items in one batch.
    """

    def __init__(
        self, *, size: int, batch_size: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._size, self._batch_size, self._monotonic = size, batch_size, monotonic
        # Not bounded here: a worker's event loop that waits for room answers no ping and sends no
        # heartbeat. The gate stops feeding it instead (worker/admission/gate.py).
        self._items: queue.Queue[Item] = queue.Queue()
        self._waiting_bytes, self._counting = 0, threading.Lock()
        #: Set while an item waits that must not wait for others.
        self._hurried = threading.Event()
        self._written_at = float("-inf")

    @property
    def waiting(self) -> int:
        """Items that are in no batch yet."""
        return self._items.qsize()

    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return self._items.empty()

    def is_full(self) -> bool:
        """Whether as many items, or bytes, wait as may wait."""
        # Each message asks, and qsize() takes a lock.
        return len(self._items.queue) >= self._size or self._waiting_bytes >= QUEUE_BYTES

    def put(self, item: Item) -> None:
        """Add ``item``."""
        with self._counting:
            self._waiting_bytes += item.size
        self._items.put(item)
        if isinstance(item, Question) or not item.quiet_s:
            self._hurried.set()

    def next_batch(self, within_s: float) -> list[Item]:
        """The waiting items, up to a batch; empty if none comes within ``within_s`` seconds."""
        batch: list[Item] = []
        try:
            batch.append(self._items.get(timeout=within_s))
            storm = self._monotonic() - self._written_at < STORM_S
            gather_until = self._monotonic() + (GATHER_S if storm else 0.0)
            quiet_s, size = batch[0].quiet_s, batch[0].size
            while len(batch) < self._batch_size and size < BATCH_BYTES:
                batch.append(self._another(min(quiet_s, gather_until - self._monotonic())))
                quiet_s, size = min(quiet_s, batch[-1].quiet_s), size + batch[-1].size
        except queue.Empty:
            pass
        return batch

    def written(self, entries: Sequence[Entry]) -> None:
        """The records of ``entries`` are safe."""
        self._written_at = self._monotonic()
        with self._counting:
            self._waiting_bytes -= sum(entry.size for entry in entries)

    def done(self, batch: Sequence[Item]) -> None:
        """``batch`` has been dealt with."""
        for _ in batch:
            self._items.task_done()

    def join(self) -> None:
        """Wait until everything that was put before is done."""
        self._items.join()

    def _another(self, within_s: float) -> Item:
        """The next item.

        :raises queue.Empty: none came in time.
        """
        self._hurried.clear()
        if within_s > 0 and self._items.empty():
            # Only an item in a hurry ends this wait: a thread that wakes for each letter of a storm takes the
            # interpreter from the event loop each time.
            self._hurried.wait(within_s)
        return self._items.get_nowait()
