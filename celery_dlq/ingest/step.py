"""The worker's bootstep for ``dlq_ingest_queues``: one thread for each queue.

The threads have connections of their own, so that a missing queue, or a broker that closes the channel, never
affects the consumer of tasks. Nothing is prefetched beyond the current batch.
"""

from __future__ import annotations

import threading
from typing import Any

from celery import bootsteps
from celery.utils.log import get_logger

from celery_dlq.errors import CeleryDLQError

logger = get_logger(__name__)

#: Seconds between checks of an empty queue.
POLL_S = 5.0
#: Seconds between attempts after an error: the first, and the longest.
RETRY_S, RETRY_MAX_S = 5.0, 300.0
#: Seconds that a worker's shutdown waits for the current batch. Messages of an interrupted batch stay
#: in the broker.
STOP_S = 10.0


class IngestStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Runs in the worker's parent, from its start to its shutdown, whatever the task consumer does."""

    # Children are forked before the threads exist.
    requires = ("celery.worker.components:Pool",)

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
        self.stopping = threading.Event()
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
        """Ingest until stopped, or until an error, which is returned."""
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
