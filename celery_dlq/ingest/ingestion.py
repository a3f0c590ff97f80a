"""An ingestion: take a batch, store its letters, and only then remove it from the broker. The worker's
bootstep for ``dlq_ingest_queues`` makes one thread for each queue.

The threads have connections of their own, so that a missing queue, or a broker that closes the channel, never
affects the consumer of tasks. Nothing is prefetched beyond the current batch.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from celery import bootsteps
from celery.utils.log import get_logger

from celery_dlq.errors import CeleryDLQError, IngestError
from celery_dlq.ingest.letters import Ingested, LetterMaker, recall_times
from celery_dlq.ingest.source import Source, Taken
from celery_dlq.spool import hand_over
from celery_dlq.store.base import Saved

if TYPE_CHECKING:
    from celery_dlq.store import Store


logger: logging.Logger = get_logger(__name__)

#: Seconds between checks of an empty queue.
POLL_S = 5.0
#: Seconds between attempts after an error: the first, and the longest.
RETRY_S, RETRY_MAX_S = 5.0, 300.0
#: Seconds that a worker's shutdown waits for the current batch. Messages of an interrupted batch stay
#: in the broker.
STOP_S = 10.0


@dataclass(frozen=True, kw_only=True)
class IngestReport:
    """The progress or result of an ingestion. All counts are messages."""

    #: How many to take: the length of the queue at the start, or the limit.
    total: int
    #: Stored as new letters, or as newer deaths of letters.
    arrived: int = 0
    #: Already known, such as messages that a worker captured before it rejected them.
    known: int = 0
    #: Left in the broker's queue, because the store refused their letters.
    refused: int = 0
    #: Stopped by its caller before the queue was empty.
    interrupted: bool = False

    @property
    def removed(self) -> int:
        """Messages that were moved from the broker's queue to the store."""
        return self.arrived + self.known

    @property
    def done(self) -> int:
        """Messages that were taken, whatever their result."""
        return self.removed + self.refused


#: Called after every batch with the progress.
OnIngested = Callable[[IngestReport], object]


class Ingestion:
    """Empties a source into the store. If it is killed between any two steps, it loses nothing, and a message
    that it brings in twice becomes one letter.

    :param need_place: whether a message that does not say where it came from is an error. Otherwise its
        letter is stored without a queue, and cannot be redriven.
    """

    def __init__(
        self,
        source: Source,
        store: Store,
        maker: LetterMaker,
        *,
        batch_size: int,
        need_place: bool,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._source, self._store, self._maker = source, store, maker
        self._batch_size, self._need_place, self._now = batch_size, need_place, now

    def run(
        self,
        *,
        limit: int | None = None,
        on_progress: OnIngested = lambda _report: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> IngestReport:
        """Work until the source is empty, ``limit`` messages are done, or ``should_stop``.

        :raises StoreError: the store failed; the current batch is still in the broker.
        :raises IngestError: the broker failed, or a message does not say where it came from.
        """
        most = sys.maxsize if limit is None else limit
        report = IngestReport(total=min(most, self._source.count()))
        while not should_stop():
            batch = self._source.take(min(self._batch_size, most - report.done))
            if not batch:
                return report
            report = self._ingest(batch, report)
            on_progress(report)
        return replace(report, interrupted=True)

    def _ingest(self, batch: Sequence[Taken], report: IngestReport) -> IngestReport:
        now = self._now()
        made = [self._maker.make(taken, now) for taken in batch]
        self._check_places(made)
        letters = recall_times(self._store, made)
        saved = list[Saved]()
        # One refused letter must not keep the others out.
        refused = hand_over(letters, lambda some: saved.append(self._store.letters.save(some)))
        self._source.remove([taken for place, taken in enumerate(batch) if place not in refused])
        return replace(
            report,
            arrived=report.arrived + sum(one.arrived for one in saved),
            known=report.known + sum(one.known for one in saved),
            refused=report.refused + len(refused),
        )

    def _check_places(self, made: Sequence[Ingested]) -> None:
        lost = [item.letter.task_id for item in made if not item.placed]
        if lost and self._need_place:
            raise IngestError(
                f"{len(lost)} of the next {len(made)} messages do not say where they came from "
                f"(the first is {lost[0]}), so they were left in the queue; give --to QUEUE, "
                "the queue to which a redrive should send them"
            )
        if lost:
            logger.warning(
                "%d messages of queue %s do not say where they came from; their letters are kept "
                "without a queue, the first is %s", len(lost), self._maker.queue, lost[0],
            )  # fmt: skip


class IngestStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Runs in the worker's parent, from its start to its shutdown, whatever the task consumer does."""

    # Children, and an embedded beat, are forked before the threads exist.
    requires = ("celery.worker.components:Pool", "celery.worker.components:Beat")

    def __init__(self, worker: Any, **options: Any) -> None:
        self._threads: list[IngestThread] = []
        super().__init__(worker, **options)

    def include_if(self, worker: Any) -> bool:
        """Whether there is a queue to ingest."""
        return bool(worker.app.dead_letter_queue.settings.ingest_queues)

    def start(self, worker: Any) -> None:
        """Called when the pool runs and the consumer is about to start."""
        dlq = worker.app.dead_letter_queue
        for queue in dlq.settings.ingest_queues:
            if queue in worker.app.amqp.queues.consume_from:
                logger.error(
                    "dlq_ingest_queues names %s, from which this worker takes tasks; it is not "
                    "ingested. Name the dead-letter queue, or start the worker with -X %s",
                    queue, queue,
                )  # fmt: skip
                continue
            thread = IngestThread(dlq, queue, worker=str(worker.hostname or ""))
            thread.start()
            self._threads.append(thread)

    def stop(self, worker: Any) -> None:
        """Called when the worker shuts down."""
        for thread in self._threads:
            thread.stopping.set()
        for thread in self._threads:
            thread.join(timeout=STOP_S)
        self._threads.clear()

    terminate = stop


class IngestThread(threading.Thread):
    """Ingests one queue until it is stopped."""

    def __init__(self, dlq: Any, queue: str, *, worker: str) -> None:
        super().__init__(name=f"dlq-ingest-{queue}", daemon=True)
        self.stopping: threading.Event = threading.Event()
        self._dlq, self._queue, self._worker = dlq, queue, worker
        self._wait_s = RETRY_S

    def run(self) -> None:
        """Empty the queue, wait, and check again; after an error, on a new connection."""
        while not self.stopping.is_set():
            problem = self._try()
            if problem is not None:
                logger.error(
                    "queue %s is not ingested, next try in %g s: %s",
                    self._queue, self._wait_s, problem,
                )  # fmt: skip
                self.stopping.wait(self._wait_s)
                self._wait_s = min(2 * self._wait_s, RETRY_MAX_S)

    def _try(self) -> str | None:
        """Ingest until stopped; an error ends it, and is returned."""
        try:
            self._work()
        except CeleryDLQError as error:
            return str(error)
        except Exception as error:
            logger.exception("ingestion of queue %s failed unexpectedly", self._queue)
            return type(error).__name__
        return None

    def _work(self) -> None:
        """Ingest on one connection.

        The store is asked first. While it is away, no messages are taken, because giving them back
        counts as a delivery in quorum queues, which drop a message after a number of deliveries.
        """
        self._dlq.store.check_schema()
        with self._dlq.open_ingestion(
            self._queue, worker=self._worker, need_place=False
        ) as ingestion:
            while not self.stopping.is_set():
                report = ingestion.run(should_stop=self.stopping.is_set)
                self._wait_s = RETRY_S
                if report.removed:
                    logger.info(
                        "ingested %d messages of queue %s, %d of them already known",
                        report.removed, self._queue, report.known,
                    )  # fmt: skip
                self.stopping.wait(POLL_S)
