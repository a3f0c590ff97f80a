"""The writer's calls to the store. Each call ends within bounded time. After a failure, the writer does not
call the store for a while. The drain saves spooled letters in small steps, so that new letters do not wait
for it."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from celery_dlq.base.bounded import TakesTooLong, bounded
from celery_dlq.errors import CeleryDLQError, RecordRefused, StoreUnavailable
from celery_dlq.model.letter import DeadLetter, Outcome
from celery_dlq.model.states import State
from celery_dlq.spool.directory import Drained, Spool, hand_over
from celery_dlq.spool.segment import Record
from celery_dlq.worker.writing.saver_process import SaverGone, SaverProcess, too_late

if TYPE_CHECKING:
    from celery_dlq.store import Store

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds for which a store that failed is left alone; letters go straight to the spool.
STORE_PAUSE_S = 5.0
#: Seconds between two checks for spooled letters, of this worker or of one that has ended.
DRAIN_INTERVAL_S = 30.0
#: The most causes of one failure that are logged, because the text of an error may change with each try.
_CAUSES = 5


def write(store: Store, records: Sequence[Record]) -> None:
    """Write letters before outcomes, so that a letter and its success in one batch end resolved."""
    letters = [record for record in records if isinstance(record, DeadLetter)]
    outcomes = [record for record in records if isinstance(record, Outcome)]
    parked = [letter for letter in letters if letter.state is State.PARKED]
    dead = [letter for letter in letters if letter.state is not State.PARKED]
    if parked:
        store.parked.park(parked, now=datetime.now(timezone.utc))
    if dead:
        store.letters.save(dead)
    if outcomes:
        store.letters.record_outcomes(outcomes)


class StoreCalls:
    """Writes records and puts questions. One thread at a time may use it.

    :param open_store: makes the store on first use.
    :param health: records whether the store works.
    :param timeout: seconds to wait for one call, whatever the cause of the delay.
    :param on_pause: called after a failure with the time when the store may be called again.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        health: StoreHealth,
        *,
        timeout: float,
        on_pause: Callable[[float], object],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_store, self._health, self._monotonic = open_store, health, monotonic
        self._on_pause = on_pause
        self._timeout = timeout
        #: The call that did not end in time.
        self._late: Future[Any] | None = None
        self._saver_process: SaverProcess | None = None
        self._paused_until = float("-inf")
        #: Whether the last call failed.
        self.has_failed: bool = False

    def employ(self, saver_process: SaverProcess) -> None:
        """Let ``saver_process`` save the batches that it takes, from now on."""
        self._saver_process = self._saver_process or saver_process

    def write(self, records: Sequence[Record]) -> Sequence[Record]:
        """Write ``records``; returns the records that the store did not accept."""
        if self._is_paused():
            return records
        try:
            refused = hand_over(records, self.write_or_raise)
        except CeleryDLQError as error:
            self.fails(error)
            return records
        except Exception:
            logger.exception("dead-letter store failed unexpectedly")
            return records
        self.works()
        return [records[place] for place in refused]

    def write_or_raise(self, records: Sequence[Record]) -> None:
        """Write ``records`` in one transaction, in the saver process or here.

        :raises StoreError: the store failed, or did not answer in time.
        """
        process = self._saver_process
        if process is not None and process.takes(records):
            with contextlib.suppress(SaverGone):
                self._call(lambda: process.save(records))
                return
        self._call(lambda: write(self._open_store(), records))

    def ask(
        self, question: Callable[[Store, Sequence[Any]], Sequence[Any]], about: Sequence[Any]
    ) -> Sequence[Any]:
        """The store's answers to ``question``, one for each subject: None if the store did not give one."""
        if not self._is_paused():
            try:
                answers = self._call(lambda: question(self._open_store(), about))
                self.works()
                return [answer for _, answer in zip(about, answers, strict=True)]
            except Exception as error:
                if isinstance(error, CeleryDLQError) and not isinstance(error, RecordRefused):
                    self.fails(error)
                elif len(about) > 1:
                    return [answer for one in about for answer in self.ask(question, [one])]
                else:
                    logger.exception("dead-letter store could not answer")
        return [None] * len(about)

    def check(self) -> None:
        """Find out whether a store that has failed works again."""

        def check(store: Store, _: Sequence[Any]) -> Sequence[Any]:
            store.check_schema()
            return [None]

        self.ask(check, [None])

    def fails(self, error: Exception) -> None:
        """Leave the store alone for :data:`STORE_PAUSE_S`, because it has failed."""
        self._paused_until = self._monotonic() + STORE_PAUSE_S
        self.has_failed = True
        self._on_pause(self._paused_until)
        self._health.fails("writer", error)

    def works(self) -> None:
        """Note that the store has answered."""
        self._paused_until = float("-inf")
        self.has_failed = False
        self._health.works("writer")

    def close(self) -> None:
        """End the process that saves in storms; the next storm starts it again."""
        if self._saver_process is not None:
            self._saver_process.stop()

    def _is_paused(self) -> bool:
        return self._monotonic() < self._paused_until

    def _call(self, work: Callable[[], T]) -> T:
        """The result of ``work``. It runs in a thread of its own, because a database's own timeouts limit a
        statement. They do not limit a client whose server is frozen, or whose answer is stuck on the way.

        :raises StoreUnavailable: it took too long and may still succeed, or an earlier call still runs.
        """
        if self._late is not None and not self._late.done():
            raise StoreUnavailable("The dead-letter store has still not answered an earlier call.")
        try:
            return bounded(work, self._timeout, thread_name="dlq-store")
        except TakesTooLong as late:
            self._late = late.future
            raise too_late(self._timeout) from None


class StoreHealth:
    """Collects reports from the threads of a worker on whether the store works. Each cause of a failure is
    logged once, whichever thread notices it first; the end of the failure is logged once the store works for
    all threads.

    :param spool: the directory where letters go meanwhile.
    """

    def __init__(self, spool: Path) -> None:
        self._spool = spool
        self._lock = threading.Lock()
        #: The threads for which the store fails, and the causes that were logged.
        self._failing, self._told = set[str](), set[str]()

    def fails(self, thread: str, error: Exception) -> None:
        """Note that the store has failed for ``thread``."""
        cause = str(error)
        with self._lock:
            self._failing.add(thread)
            is_news = cause not in self._told and len(self._told) < _CAUSES
            if is_news:
                self._told.add(cause)
        if is_news:
            logger.error(
                "dead letters go to the spool %s, and parked retries wait: %s", self._spool, cause
            )

    def works(self, thread: str) -> None:
        """Note that the store has answered ``thread``."""
        if not self._failing:
            return
        with self._lock:
            was_failing = bool(self._failing)
            self._failing.discard(thread)
            is_well = was_failing and not self._failing
            if is_well:
                self._told.clear()
        if is_well:
            logger.info("dead letters go to the store again")


class SpoolDrain:
    """Drains ``spool`` in steps; the first one is due at once. One thread at a time may use it."""

    def __init__(
        self,
        spool: Spool,
        store: StoreCalls,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spool, self._store, self._monotonic = spool, store, monotonic
        self._steps: Generator[Drained, None, None] | None = None
        self._drained = Drained()
        self._due_at = float("-inf")

    def wait_until(self, due_at: float) -> None:
        """Begin the next drain at ``due_at``, by the monotonic clock."""
        self._due_at = due_at

    def seconds_until_due(self) -> float:
        """Seconds until the next step."""
        if self._steps is not None:
            return 0.0
        return max(0.0, min(self._due_at - self._monotonic(), DRAIN_INTERVAL_S))

    def step_when_due(self) -> None:
        """Make the next step of a drain, or begin one, if it is time."""
        if self._steps is None:
            if self._monotonic() < self._due_at:
                return
            self._steps, self._drained = self._spool.drain(self._store.write_or_raise), Drained()
        try:
            step = next(self._steps, None)
        except CeleryDLQError as error:
            self.stop()
            self._store.fails(error)
        except Exception:
            self.stop()
            logger.exception("spool %s could not be drained", self._spool.directory)
        else:
            self._count(step)

    def stop(self) -> None:
        """End the drain that has begun, if any; another one follows later."""
        if self._steps is not None:
            self._steps.close()
        self._steps = None
        self._due_at = self._monotonic() + DRAIN_INTERVAL_S

    def _count(self, step: Drained | None) -> None:
        if step is not None:
            self._drained += step
            if step.stored:
                self._store.works()
            return
        self.stop()
        if self._drained.stored:
            logger.info("%d spooled dead letters drained into the store", self._drained.stored)
        elif self._store.has_failed:
            # Check now, because the next letter may not come for hours.
            self._store.check()
