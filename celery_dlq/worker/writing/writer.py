"""The thread that talks to the store: it writes letters and outcomes in batches (to the spool if the store
does not accept them), and puts questions to the store.

A transaction costs milliseconds, however small it is, and the writer's thread takes this time from the event
loop. So in a storm of failures a batch is gathered; a letter that comes alone is written at once.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import State
from celery_dlq.spool.directory import Spool
from celery_dlq.spool.segment import Record
from celery_dlq.store.base import BATCH_SIZE
from celery_dlq.worker.failure import logged
from celery_dlq.worker.writing.saver_process import SaverProcess
from celery_dlq.worker.writing.store_calls import SpoolDrain, StoreCalls, StoreHealth

if TYPE_CHECKING:
    from celery_dlq.store import Store

logger: logging.Logger = logging.getLogger(__name__)

K = TypeVar("K")
T = TypeVar("T")

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

UNFINISHED = "dead letter stored, but its message could not be finished"


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

    quiet_s: float = 0.0
    size: int = 0


Item: TypeAlias = Entry | Question | Wake

#: Letters that may wait in a worker for the store. Beyond it, no more tasks on DLQTask start until some are
#: written.
QUEUE_SIZE = 10_000


class Inbox(queue.Queue[Item]):
    """Accepts items from any thread; the writer's thread takes them out in batches.

    :param size: items that may wait before it :meth:`is_full`.
    :param batch_size: items in one batch.
    """

    def __init__(
        self, *, size: int, batch_size: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        # Not bounded: a worker's event loop that waits for room answers no ping and sends no heartbeat. The
        # valve stops feeding it instead (worker/admission/valve.py).
        super().__init__()
        self._size, self._batch_size, self._monotonic = size, batch_size, monotonic
        self._waiting_bytes, self._counting = 0, threading.Lock()
        #: Set while an item waits that must not wait for others.
        self._hurried = threading.Event()
        self._written_at = float("-inf")

    def is_full(self) -> bool:
        """Whether as many items, or bytes, wait as may wait."""
        # Each message asks, and qsize() takes a lock.
        return len(self.queue) >= self._size or self._waiting_bytes >= QUEUE_BYTES

    def add(self, item: Item) -> None:
        """Put ``item``."""
        with self._counting:
            self._waiting_bytes += item.size
        self.put(item)
        if isinstance(item, Question) or not item.quiet_s:
            self._hurried.set()

    def next_batch(self, within_s: float) -> list[Item]:
        """The waiting items, up to a batch; empty if none comes within ``within_s`` seconds."""
        batch: list[Item] = []
        try:
            batch.append(self.get(timeout=within_s))
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

    def _another(self, within_s: float) -> Item:
        """The next item.

        :raises queue.Empty: none came in time.
        """
        self._hurried.clear()
        if within_s > 0 and self.empty():
            # Only an item in a hurry ends this wait: a thread that wakes for each letter of a storm takes the
            # interpreter from the event loop each time.
            self._hurried.wait(within_s)
        return self.get_nowait()


#: Give it a level of its own, or switch it off, in the configuration of ``logging``.
letters_logger: logging.Logger = logging.getLogger("celery_dlq.letters")

#: The most lines in each of these spans of seconds. In a storm, the other letters are counted.
MOST, SPAN_S = 20, 1.0


class Notices:
    """Writes the lines, and how many letters had none. One thread at a time may use it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._until, self._said, self._others = float("-inf"), 0, 0

    def log(self, records: Sequence[Record]) -> None:
        """Log the dead letters among ``records``, which are in the store or in the spool."""
        if not letters_logger.isEnabledFor(logging.INFO):
            return
        for record in records:
            if isinstance(record, DeadLetter) and record.state is not State.PARKED:
                self._log(record)

    def _log(self, letter: DeadLetter) -> None:
        self.log_others()
        if self._is_over():
            self._until, self._said = self._monotonic() + SPAN_S, 0
        if self._said >= MOST:
            self._others += 1
            return
        self._said += 1
        # Names may come from a hostile message, and repr() leaves no control characters in them.
        letters_logger.info(
            "dead letter %s of task %s: %s, %s by rule %s", *(
                repr(str(one))[1:-1]
                for one in (
                    letter.task_id, letter.task, letter.reason.value,
                    letter.exception_type, letter.explanation.rule,
                )
            ),
        )  # fmt: skip

    def log_others(self, *, at_once: bool = False) -> None:
        """Log how many letters had no line of their own, once their span is over, or at once."""
        if self._others and (at_once or self._is_over()):
            letters_logger.info("dead letters without a line of their own: %d", self._others)
            self._others = 0

    def _is_over(self) -> bool:
        return self._monotonic() >= self._until


class Writer:
    """Takes records from any thread; each is durable before its ``safe`` is called.

    :param open_store: makes the store on first use.
    :param size: records that may wait before the writer :attr:`is_full`.
    :param batch_size: records written in one transaction.
    :param timeout: seconds to wait for one call to the store, whatever delays it.
    :param health: notified whether the store works; by default, a new one.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        spool: Spool,
        *,
        size: int = QUEUE_SIZE,
        batch_size: int = BATCH_SIZE,
        timeout: float = 10.0,
        health: StoreHealth | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spool = spool
        self._inbox = Inbox(size=size, batch_size=batch_size, monotonic=monotonic)
        #: Whether messages should wait until some records are written. Each message asks.
        self.is_full: Callable[[], bool] = self._inbox.is_full
        self._store = StoreCalls(
            open_store,
            health or StoreHealth(spool.directory),
            timeout=timeout,
            on_pause=lambda until: self._drain.wait_until(until),
            monotonic=monotonic,
        )
        self._drain = SpoolDrain(spool, self._store, monotonic=monotonic)
        self._notices = Notices(monotonic)
        #: None while there is nothing to do after :meth:`stop`.
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        # Held while something is put for the thread, so that the thread cannot end without seeing it.
        self._putting = threading.Lock()

    def write(
        self, record: Record, safe: Callable[[], object], *, quiet_s: float = QUIET_S
    ) -> None:
        """Write ``record``, then call ``safe``.

        :param quiet_s: seconds without another record after which it is written. 0.0 if the caller
            waits until then.
        """
        self._put(Entry(record, safe, quiet_s))

    def ask(self, question: Callable[[Store], T], answered: Callable[[T | None], object]) -> None:
        """Put ``question`` to the store, after the records that came before. ``answered`` gets the
        answer: None if the store does not answer, or is left alone after a failure."""
        self._put(Question(lambda store, _: [question(store)], None, answered))

    def ask_together(
        self,
        question: Callable[[Store, Sequence[K]], Sequence[T]],
        about: K,
        answered: Callable[[T | None], object],
    ) -> None:
        """Put ``question`` to the store in one call with the others of its kind that wait: it gets all their
        subjects, and answers in that order. Records that came before need not be written."""
        self._put(Question(question, about, answered, together=True))

    @property
    def waiting(self) -> int:
        """Records that the thread has not taken up yet."""
        return self._inbox.qsize()

    def flush(self) -> None:
        """Wait until everything that came before is safe."""
        if self._thread is not None:
            self._inbox.join()

    def stop(self) -> None:
        """Write what waits, then end the thread. Records that come later are written, too: by a
        new thread, which ends after them."""
        with self._putting:
            self._is_stopping, thread = True, self._thread
            if thread is not None:
                self._inbox.add(Wake())
        if thread is not None:
            thread.join()

    def start(self) -> None:
        """Start now, so that letters spooled by an earlier worker are drained even if no task of this one
        fails."""
        with self._putting:
            self._is_stopping = False
            self._ensure_started()

    def employ(self, saver_process: SaverProcess) -> None:
        """Let ``saver_process`` save the batches that it takes, from now on."""
        self._store.employ(saver_process)

    def _put(self, item: Item) -> None:
        with self._putting:
            self._inbox.add(item)
            self._ensure_started()

    def _ensure_started(self) -> None:
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name="dlq-writer", daemon=True)
        # This raises an error while the system has no thread to spare; the next record tries again.
        thread.start()
        self._thread = thread

    def _run(self) -> None:
        while True:
            self._deal_with(self._inbox.next_batch(self._drain.seconds_until_due()))
            self._drain.step_when_due()
            self._notices.log_others()
            if self._is_stopping and self._inbox.empty():
                self._tidy_up()
                with self._putting:
                    if self._inbox.empty():  # nothing has come since
                        self._thread = None
                        return

    def _deal_with(self, batch: Sequence[Item]) -> None:
        entries = [item for item in batch if isinstance(item, Entry)]
        questions = [item for item in batch if isinstance(item, Question)]
        # First these, because messages wait for them: those messages run while the rest is written.
        self._answer([question for question in questions if question.together])
        self._write(entries)
        self._answer([question for question in questions if not question.together])
        for _ in batch:
            self._inbox.task_done()

    def _write(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        left = self._store.write([entry.record for entry in entries])
        if left:
            self._spool.keep(left)
        for entry in entries:
            with logged(logger, UNFINISHED):
                entry.safe()
        self._notices.log([entry.record for entry in entries])
        self._inbox.written(entries)

    def _answer(self, questions: Sequence[Question]) -> None:
        kinds: dict[object, list[Question]] = {}
        for question in questions:
            kinds.setdefault(question.put_to, []).append(question)
        for kind in kinds.values():
            answers = self._store.ask(kind[0].put_to, [question.about for question in kind])
            for question, answer in zip(kind, answers, strict=True):
                with logged(logger, UNFINISHED):
                    question.answered(answer)

    def _tidy_up(self) -> None:
        """Close everything that this thread has opened, before it ends."""
        self._notices.log_others(at_once=True)
        self._drain.stop()
        with logged(logger, "celery_dlq could not close all that it had open"):
            self._store.close()
            self._spool.close()
