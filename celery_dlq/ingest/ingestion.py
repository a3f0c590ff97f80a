"""An ingestion: take a batch, store its letters, and only then remove it from the broker. Nothing is
prefetched beyond the current batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from celery_dlq.errors import IngestError
from celery_dlq.ingest.letters import Ingested, LetterMaker, recall_times
from celery_dlq.ingest.source import BrokerMessage, Source
from celery_dlq.spool.directory import hand_over
from celery_dlq.store.base import BATCH_SIZE, Saved

if TYPE_CHECKING:
    from celery_dlq.store import Store


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
    that it brings in twice becomes one letter."""

    def __init__(
        self,
        source: Source,
        store: Store,
        maker: LetterMaker,
        *,
        batch_size: int = BATCH_SIZE,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._source, self._store, self._maker = source, store, maker
        self._batch_size, self._now = batch_size, now

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

    def _ingest(self, batch: Sequence[BrokerMessage], report: IngestReport) -> IngestReport:
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
        if lost:
            raise IngestError(
                f"{len(lost)} of the next {len(made)} messages do not say where they came from "
                f"(the first is {lost[0]}), so they were left in the queue; give --to QUEUE, "
                "the queue to which a redrive should send them"
            )
