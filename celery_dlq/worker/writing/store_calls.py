"""The writer's calls to the store: each ends within bounded time, and none is made while the store is left
alone after a failure."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from celery_dlq.errors import CeleryDLQError, RecordRefused
from celery_dlq.spool import Record, hand_over
from celery_dlq.worker.writing.bounded_calls import BoundedCalls
from celery_dlq.worker.writing.inbox import Question
from celery_dlq.worker.writing.saver_process import SaverGone, SaverProcess
from celery_dlq.worker.writing.saving import save
from celery_dlq.worker.writing.store_health import StoreHealth

if TYPE_CHECKING:
    from celery_dlq.store import Store


logger = logging.getLogger(__name__)

#: Seconds for which a store that failed is left alone; letters go straight to the spool.
STORE_PAUSE_S = 5.0


class StoreCalls:
    """Saves records and puts questions. One thread at a time may use it.

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
        self._calls = BoundedCalls(timeout)
        self._saver_process: SaverProcess | None = None
        self._paused_until = float("-inf")
        #: Whether the last call failed.
        self.has_failed = False

    def employ(self, saver_process: SaverProcess) -> None:
        """Let ``saver_process`` save the batches that it takes, from now on."""
        self._saver_process = self._saver_process or saver_process

    def store(self, records: Sequence[Record]) -> Sequence[Record]:
        """Save ``records``; returns those that the store did not take."""
        if self._is_paused():
            return records
        try:
            refused = hand_over(records, self.save)
        except CeleryDLQError as error:
            self.fails(error)
            return records
        except Exception:
            logger.exception("dead-letter store failed unexpectedly")
            return records
        self.works()
        return [records[place] for place in refused]

    def save(self, records: Sequence[Record]) -> None:
        """Save ``records`` in one transaction, in the saver process or here.

        :raises StoreError: the store failed, or did not answer in time.
        """
        process = self._saver_process
        if process is not None and process.takes(records):
            with contextlib.suppress(SaverGone):
                self._calls.call(lambda: process.save(records))
                return
        self._calls.call(lambda: save(self._open_store(), records))

    def answers(self, kind: Sequence[Question]) -> list[tuple[Question, Any]]:
        """Questions of one kind, each with its answer: None if the store did not give one."""
        if not self._is_paused():
            about = [question.about for question in kind]
            try:
                answers = self._calls.call(lambda: kind[0].put_to(self._open_store(), about))
                self.works()
                return list(zip(kind, answers, strict=True))
            except Exception as error:
                if isinstance(error, CeleryDLQError) and not isinstance(error, RecordRefused):
                    self.fails(error)
                elif len(kind) > 1:
                    return [pair for question in kind for pair in self.answers([question])]
                else:
                    logger.exception("dead-letter store could not answer")
        return [(question, None) for question in kind]

    def check(self) -> None:
        """Find out whether a store that has failed works again."""
        self.answers([Question(_check, None, lambda _: None)])

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
        """End the thread and the process that make the calls; the next call starts them again."""
        self._calls.stop()
        if self._saver_process is not None:
            self._saver_process.stop()

    def _is_paused(self) -> bool:
        return self._monotonic() < self._paused_until


def _check(store: Store, _: Sequence[Any]) -> Sequence[Any]:
    store.check_schema()
    return [None]
