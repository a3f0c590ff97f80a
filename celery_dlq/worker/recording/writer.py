"""One thread that deals with the store: it writes letters and outcomes in groups, or else to the spool,
and asks questions."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import Any, TypeVar

from celery_dlq.errors import CeleryDLQError, RecordRefused
from celery_dlq.letter import DeadLetter, Outcome
from celery_dlq.spool import Drained, Record, Spool, encode, hand_over, log_whole
from celery_dlq.states import State
from celery_dlq.store.base import Store
from celery_dlq.worker.recording.patience import Patience
from celery_dlq.worker.recording.scribe import Scribe, ScribeGone

logger = logging.getLogger(__name__)

K = TypeVar("K")
T = TypeVar("T")

#: Seconds for which a store that failed is not asked again; letters go straight to the spool.
STORE_PAUSE_S = 5.0
#: In a storm of failures a batch is gathered for so many seconds, or until no further letter came for
#: so many. A transaction costs milliseconds however small it is, and the writer's thread takes them
#: from the event loop. A letter that comes alone is written at once.
GATHER_S, QUIET_S = 0.25, 0.05
#: The same for a letter whose message is not acknowledged before it is safe: until then it keeps another
#: one from being delivered, so that with the prefetch limit nothing would come that could be gathered.
HELD_QUIET_S = 0.004
#: Seconds after a write in which the next letter counts as part of a storm.
STORM_S = 0.5
#: Bytes of bodies that may wait for the store, and that are written in one transaction. Ten thousand
#: letters of 50 MB would fit in no memory.
QUEUE_BYTES, BATCH_BYTES = 256 << 20, 16 << 20
#: Seconds between looks for spooled letters, one's own or those of a worker that is gone.
DRAIN_INTERVAL_S = 30.0


@dataclass(frozen=True)
class _Entry:
    record: Record
    #: Called on the writer's thread once the record is safe.
    safe: Callable[[], object]
    #: Seconds without a further letter after which this one is written.
    quiet_s: float


@dataclass(frozen=True)
class _Question:
    #: Gets what all are about that are put with it, and answers in that order. Those of one kind share it.
    put_to: Callable[[Store, Sequence[Any]], Sequence[Any]]
    about: Any
    #: Called on the writer's thread with the answer, or None.
    answered: Callable[[Any], object]
    #: Whether it is put with those of its kind, and before what waits is written.
    together: bool = False

    @property
    def quiet_s(self) -> float:
        # A message that waits for an answer keeps another one from being delivered, too.
        return HELD_QUIET_S if self.together else 0.0


class Writer:
    """Takes records from any thread; each is durable before its ``safe`` is called.

    :param open_store: makes the store on first use, on the writer's own thread.
    :param size: records that may wait before the writer :meth:`is_full`.
    :param batch_size: records written in one transaction.
    :param patience: seconds to wait for one write to the store, whatever it is that holds it up.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        spool: Spool,
        *,
        size: int,
        batch_size: int,
        patience: float = 10.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_store, self._spool, self._batch_size = open_store, spool, batch_size
        self._monotonic = monotonic
        self._patience = Patience(patience)
        self._scribe: Scribe | None = None
        self._draining: Generator[Drained, None, None] | None = None
        self._drained = Drained()
        self._size, self._waiting_bytes, self._counting = size, 0, threading.Lock()
        # Not bounded here: a worker's event loop that waits for room answers no ping and sends no
        # heartbeat. The gate stops feeding it instead (worker/admission/gate.py).
        self._entries: queue.Queue[_Entry | _Question | None] = queue.Queue()
        #: Set while something waits that is not to wait for others.
        self._hurried = threading.Event()
        self._store_paused_until = self._drain_at = self._written_at = float("-inf")
        # Why the store is paused; empty while it works.
        self._trouble = ""
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def submit(
        self, record: Record, safe: Callable[[], object], *, quiet_s: float = QUIET_S
    ) -> None:
        """Write ``record``, then call ``safe``.

        :param quiet_s: it is written when no other has come for so many seconds. At 0.0 the caller does
            nothing else until then.
        """
        self._ensure_started()
        entry = _Entry(record, safe, quiet_s)
        with self._counting:
            self._waiting_bytes += _size(entry)
        self._put(entry)

    def ask(self, question: Callable[[Store], T], answered: Callable[[T | None], object]) -> None:
        """Put ``question`` to the store, after what was submitted before. ``answered`` gets the answer:
        None when the store does not answer, or is left in peace after a failure."""
        self._ensure_started()
        self._put(_Question(lambda store, _: [question(store)], None, answered))

    def ask_together(
        self,
        question: Callable[[Store, Sequence[K]], Sequence[T]],
        about: K,
        answered: Callable[[T | None], object],
    ) -> None:
        """Put ``question`` to the store in one call with others that put the same one and wait: it gets all
        that they ask about, and answers in that order. What was submitted before need not be written."""
        self._ensure_started()
        self._put(_Question(question, about, answered, together=True))

    @property
    def waiting(self) -> int:
        """Records that are not yet taken up for writing."""
        return self._entries.qsize()

    def is_full(self) -> bool:
        """Whether no further failures should be brought about until some are written."""
        # Each message asks, and qsize() takes a lock.
        return len(self._entries.queue) >= self._size or self._waiting_bytes >= QUEUE_BYTES

    def flush(self) -> None:
        """Return when everything submitted before is safe."""
        if self._thread is not None:
            self._entries.join()

    def stop(self) -> None:
        """Write what waits, then end the thread."""
        with self._starting:
            if self._thread is not None:
                self._put(None)
                self._thread.join()
                self._thread = None
            self._patience.stop()
            if self._scribe is not None:
                self._scribe.stop()
            self._spool.close()

    def start(self) -> None:
        """Start now, so that letters spooled by an earlier worker are drained before the first one
        of this worker dies."""
        self._ensure_started()

    def employ(self, scribe: Scribe) -> None:
        """Let ``scribe`` save what it takes, from now on."""
        self._scribe = self._scribe or scribe

    def _ensure_started(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dlq-writer", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        running = True
        while running:
            batch = self._next_batch()
            running = None not in batch
            entries = [entry for entry in batch if isinstance(entry, _Entry)]
            questions = [entry for entry in batch if isinstance(entry, _Question)]
            # What these let in runs while the rest is written.
            self._answer_all([question for question in questions if question.together])
            self._write_safely([entry.record for entry in entries])
            self._written_at = self._monotonic() if entries else self._written_at
            for entry in entries:
                self._call_back(entry.safe)
            with self._counting:
                self._waiting_bytes -= sum(map(_size, entries))
            self._answer_all([question for question in questions if not question.together])
            for _ in batch:
                self._entries.task_done()
            self._drain_when_due()
        self._stop_draining()

    def _next_batch(self) -> list[_Entry | _Question | None]:
        """What waits, up to a batch; nothing when it is time to look at the spool."""
        batch: list[_Entry | _Question | None] = []
        try:
            batch.append(self._entries.get(timeout=self._seconds_to_drain()))
            storm = self._monotonic() - self._written_at < STORM_S
            gather_until = self._monotonic() + (GATHER_S if storm else 0.0)
            quiet_s, size = _quiet(batch[0]), _size(batch[0])
            while len(batch) < self._batch_size and size < BATCH_BYTES:
                within_s = min(quiet_s, gather_until - self._monotonic())
                batch.append(self._another(within_s))
                quiet_s, size = min(quiet_s, _quiet(batch[-1])), size + _size(batch[-1])
        except queue.Empty:
            pass
        return batch

    def _another(self, within_s: float) -> _Entry | _Question | None:
        """The next entry.

        :raises queue.Empty: none has come for so many seconds.
        """
        self._hurried.clear()
        if within_s > 0 and self._entries.empty():
            # Only what is in a hurry ends this: a thread that wakes for each letter of a storm takes the
            # interpreter from the event loop each time.
            self._hurried.wait(within_s)
        return self._entries.get_nowait()

    def _put(self, entry: _Entry | _Question | None) -> None:
        self._entries.put(entry)
        if isinstance(entry, _Question) or not _quiet(entry):
            self._hurried.set()

    def _call_back(self, caller: Callable[[], object]) -> None:
        try:
            caller()
        except Exception:
            logger.exception("dead letter stored, but its message could not be finished")

    def _answer_all(self, questions: Sequence[_Question]) -> None:
        kinds: dict[object, list[_Question]] = {}
        for question in questions:
            kinds.setdefault(question.put_to, []).append(question)
        for kind in kinds.values():
            for question, answer in self._answer(kind):
                self._call_back(partial(question.answered, answer))

    def _answer(self, kind: Sequence[_Question]) -> list[tuple[_Question, Any]]:
        """The questions of one kind, each with its answer."""
        if self._monotonic() >= self._store_paused_until:
            about = [question.about for question in kind]
            try:
                answers = self._patience.call(lambda: kind[0].put_to(self._open_store(), about))
                return list(zip(kind, answers, strict=True))
            except Exception as error:
                if isinstance(error, CeleryDLQError) and not isinstance(error, RecordRefused):
                    self._pause_store(error)
                elif len(kind) > 1:
                    return [pair for question in kind for pair in self._answer([question])]
                else:
                    logger.exception("dead-letter store could not answer")
        return [(question, None) for question in kind]

    def _write_safely(self, records: Sequence[Record]) -> None:
        if not records:
            return
        try:
            left = self._store(records)
        except Exception:
            logger.exception("dead-letter store failed unexpectedly")
            left = records
        if left:
            keep_in_spool(self._spool, left)

    def _store(self, records: Sequence[Record]) -> Sequence[Record]:
        """Save ``records``; returns those that the store did not take."""
        if self._monotonic() < self._store_paused_until:
            return records
        try:
            refused = hand_over(records, self._save)
        except CeleryDLQError as error:
            self._pause_store(error)
            return records
        self._unpause_store()
        return [records[place] for place in refused]

    def _save(self, records: Sequence[Record]) -> None:
        scribe = self._scribe
        if scribe is not None and scribe.takes(records):
            with contextlib.suppress(ScribeGone):
                self._patience.call(lambda: scribe.save(records))
                return
        self._patience.call(lambda: save(self._open_store(), records))

    def _pause_store(self, error: Exception) -> None:
        self._store_paused_until = self._monotonic() + STORE_PAUSE_S
        self._drain_at = self._store_paused_until
        if str(error) != self._trouble:
            # Once, and not each time that a store is asked which is still away.
            self._trouble = str(error)
            logger.error("dead letters go to the spool %s: %s", self._spool.directory, error)

    def _unpause_store(self) -> None:
        self._store_paused_until = float("-inf")
        if self._trouble:
            self._trouble = ""
            logger.info("dead letters go to the store again")

    def _seconds_to_drain(self) -> float:
        if self._draining is not None:
            return 0.0
        return max(0.0, min(self._drain_at - self._monotonic(), DRAIN_INTERVAL_S))

    def _drain_when_due(self) -> None:
        """One step of a drain, so that letters that come meanwhile are not kept waiting."""
        if self._draining is None:
            if self._monotonic() < self._drain_at:
                return
            self._draining, self._drained = self._spool.drain(self._save), Drained()
        try:
            step = next(self._draining, None)
        except CeleryDLQError as error:
            self._stop_draining()
            self._pause_store(error)
        except Exception:
            self._stop_draining()
            logger.exception("spool %s could not be drained", self._spool.directory)
        else:
            self._count_drained(step)

    def _count_drained(self, step: Drained | None) -> None:
        if step is not None:
            self._drained += step
            if step.stored:
                self._unpause_store()
            return
        self._stop_draining()
        if self._drained.stored:
            logger.info("%d spooled dead letters drained into the store", self._drained.stored)

    def _stop_draining(self) -> None:
        if self._draining is not None:
            self._draining.close()
        self._draining = None
        self._drain_at = self._monotonic() + DRAIN_INTERVAL_S


def _quiet(entry: _Entry | _Question | None) -> float:
    """Seconds for which ``entry`` waits for another one."""
    return 0.0 if entry is None else entry.quiet_s


def _size(entry: _Entry | _Question | None) -> int:
    """Bytes of the message's body."""
    if not isinstance(entry, _Entry) or not isinstance(entry.record, DeadLetter):
        return 0
    return len(entry.record.envelope.body)


def keep_in_spool(spool: Spool, records: Sequence[Record]) -> None:
    """Append ``records`` to ``spool``, or to the log; never raises."""
    try:
        spool.append(records)
    except Exception as error:  # noqa: BLE001 - whatever the disk does, the letter must survive
        if len(records) == 1:
            _keep_in_log(records[0], error)
            return
        # What room is left may do for some.
        for record in records:
            keep_in_spool(spool, [record])


def _keep_in_log(record: Record, error: Exception) -> None:
    try:
        log_whole(encode(record), error)
    except Exception:
        # Without its thread nothing would be written any more, and no message be finished.
        logger.critical(
            "dead letter neither stored nor spooled, nor to be encoded: %r", record, exc_info=True
        )


def save(store: Store, records: Sequence[Record]) -> None:
    """Save letters before outcomes, so that a letter and its success in one batch end resolved."""
    letters = [record for record in records if isinstance(record, DeadLetter)]
    outcomes = [record for record in records if isinstance(record, Outcome)]
    parked = [letter for letter in letters if letter.state is State.PARKED]
    dead = [letter for letter in letters if letter.state is not State.PARKED]
    if parked:
        store.park(parked, now=datetime.now(timezone.utc))
    if dead:
        store.save(dead)
    if outcomes:
        store.record_outcomes(outcomes)
