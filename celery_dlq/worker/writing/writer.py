"""The thread that talks to the store: it writes letters and outcomes in batches (to the spool if the store
does not accept them), and puts questions to the store.

Every record takes the same way: :class:`Writer` puts it into the inbox; its thread takes batches out of it,
and has them saved by :class:`~celery_dlq.worker.writing.store_calls.StoreCalls`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from celery_dlq.spool import Record, Spool
from celery_dlq.worker.writing.inbox import QUIET_S, Entry, Inbox, Item, Question, Wake
from celery_dlq.worker.writing.saver_process import SaverProcess
from celery_dlq.worker.writing.saving import keep_in_spool
from celery_dlq.worker.writing.spool_drain import SpoolDrain
from celery_dlq.worker.writing.store_calls import StoreCalls
from celery_dlq.worker.writing.store_health import StoreHealth

if TYPE_CHECKING:
    from celery_dlq.store import Store

logger = logging.getLogger(__name__)

K = TypeVar("K")
T = TypeVar("T")


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
        size: int,
        batch_size: int,
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
        #: None while there is nothing to do after :meth:`stop`.
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        # Held while something is put for the thread, so that the thread cannot end without seeing it.
        self._putting = threading.Lock()

    def submit(
        self, record: Record, safe: Callable[[], object], *, quiet_s: float = QUIET_S
    ) -> None:
        """Write ``record``, then call ``safe``.

        :param quiet_s: seconds without another record after which it is written. 0.0 if the caller
            waits until then.
        """
        self._put(Entry(record, safe, quiet_s))

    def ask(self, question: Callable[[Store], T], answered: Callable[[T | None], object]) -> None:
        """Put ``question`` to the store, after the records that were submitted before. ``answered`` gets the
        answer: None if the store does not answer, or is left alone after a failure."""
        self._put(Question(lambda store, _: [question(store)], None, answered))

    def ask_together(
        self,
        question: Callable[[Store, Sequence[K]], Sequence[T]],
        about: K,
        answered: Callable[[T | None], object],
    ) -> None:
        """Put ``question`` to the store in one call with the others of its kind that wait: it gets all their
        subjects, and answers in that order. Records that were submitted before need not be written."""
        self._put(Question(question, about, answered, together=True))

    @property
    def waiting(self) -> int:
        """Records that the thread has not taken up yet."""
        return self._inbox.waiting

    def flush(self) -> None:
        """Wait until everything submitted before is safe."""
        if self._thread is not None:
            self._inbox.join()

    def stop(self) -> None:
        """Write what waits, then end the thread. Records that are submitted later are written, too: by a
        new thread, which ends after them."""
        with self._putting:
            self._is_stopping, thread = True, self._thread
            if thread is not None:
                self._inbox.put(Wake())
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
            self._inbox.put(item)
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
            if self._is_stopping and self._inbox.is_empty():
                self._tidy_up()
                if self._resigns():
                    return

    def _deal_with(self, batch: Sequence[Item]) -> None:
        entries = [item for item in batch if isinstance(item, Entry)]
        questions = [item for item in batch if isinstance(item, Question)]
        # First these, because messages wait for them: those messages run while the rest is written.
        self._answer([question for question in questions if question.together])
        self._write(entries)
        self._answer([question for question in questions if not question.together])
        self._inbox.done(batch)

    def _write(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        left = self._store.store([entry.record for entry in entries])
        if left:
            keep_in_spool(self._spool, left)
        for entry in entries:
            _call_back(entry.safe)
        self._inbox.written(entries)

    def _answer(self, questions: Sequence[Question]) -> None:
        kinds: dict[object, list[Question]] = {}
        for question in questions:
            kinds.setdefault(question.put_to, []).append(question)
        for kind in kinds.values():
            for question, answer in self._store.answers(kind):
                _call_back(partial(question.answered, answer))

    def _tidy_up(self) -> None:
        """Close everything that this thread has opened, before it ends."""
        self._drain.stop()
        try:
            self._store.close()
            self._spool.close()
        except Exception:
            logger.exception("celery_dlq could not close all that it had open")

    def _resigns(self) -> bool:
        """Stop being the writer's thread, unless an item has come since; returns whether it did."""
        with self._putting:
            if not self._inbox.is_empty():
                return False
            self._thread = None
            return True


def _call_back(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception:
        logger.exception("dead letter stored, but its message could not be finished")
