"""The composition root and Python API: puts an app's parts together, each made on first use."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any

from celery import signals

from celery_dlq.classify import Classifier
from celery_dlq.letter import DeadLetter, Outcome
from celery_dlq.redact import Redactor
from celery_dlq.settings import Settings
from celery_dlq.spool import Drained, Record, Spool, hand_over
from celery_dlq.worker.task import DLQTask

if TYPE_CHECKING:
    from celery_dlq.ingest.engine import Ingestion, IngestReport, OnIngested
    from celery_dlq.redrive.engine import OnProgress
    from celery_dlq.redrive.plan import Plan, Report
    from celery_dlq.store.base import Filter, Store
    from celery_dlq.worker.deliveries import Deliveries
    from celery_dlq.worker.gate import Gate
    from celery_dlq.worker.recorder import Recorder
    from celery_dlq.worker.writer import Writer


class DeadLetterQueue:
    """The dead-letter queue of a Celery app.

    ``base=DLQTask`` on a task is all the installation there is; make one yourself only to use the
    Python API. An app has one: :meth:`of` gives it.
    """

    def __init__(self, app: Any) -> None:
        self.app = app
        app.dead_letter_queue = self
        # Before 5.7 Celery takes the same method of two queues for one receiver, unless it is named.
        name = f"celery_dlq.worker_shutdown.{id(self)}"
        signals.worker_shutdown.connect(self._on_worker_shutdown, dispatch_uid=name)
        app.steps["consumer"].add("celery_dlq.worker.step:CaptureStep")
        app.steps["worker"].add("celery_dlq.ingest.step:IngestStep")

    @classmethod
    def of(cls, app: Any) -> DeadLetterQueue:
        """The dead-letter queue of ``app``, made on first use.

        :raises SettingsError: a ``dlq_*`` setting is not valid.
        """
        queue = app.__dict__.get("dead_letter_queue") or cls(app)
        if app.finalized:
            queue.settings  # noqa: B018 - validates, once the app's configuration is complete
        return queue

    @cached_property
    def settings(self) -> Settings:
        """The validated settings."""
        return Settings.from_app(self.app)

    @cached_property
    def classifier(self) -> Classifier:
        """The app's rules before the built-in ones."""
        return Classifier.from_settings(self.settings)

    @cached_property
    def redactor(self) -> Redactor:
        """Makes display copies of arguments."""
        return Redactor(self.settings.redact)

    @cached_property
    def store(self) -> Store:
        """The store, its schema checked.

        :raises StoreError: the URL is wrong, the database does not answer, or the schema does not fit.
        """
        # Producers import tasks, and must not pay for SQLAlchemy.
        from celery_dlq.store.sql import SQLStore

        store = SQLStore.from_settings(self.settings)
        store.check_schema()
        return store

    @cached_property
    def spool(self) -> Spool:
        """Where letters go when the store does not take them."""
        return self._new_spool()

    def _new_spool(self) -> Spool:
        return Spool(self.settings.spool_dir, max_size=self.settings.spool_max_size)

    @cached_property
    def writer(self) -> Writer:
        """The worker's writing thread."""
        from celery_dlq.worker.writer import Writer

        return Writer(
            lambda: self.store,
            self.spool,
            size=self.settings.queue_size,
            batch_size=self.settings.batch_size,
            # Later than the database's own timeouts, whose errors say more.
            patience=2 * self.settings.store_timeout,
        )

    @cached_property
    def recorder(self) -> Recorder:
        """What requests hand their letters to."""
        from celery_dlq.worker.recorder import Recorder

        return Recorder(self.writer, self._spool_apart)

    @cached_property
    def deliveries(self) -> Deliveries:
        """Counts the deliveries of messages that do not end."""
        from celery_dlq.worker.deliveries import Deliveries

        return Deliveries(self.recorder, self.settings.max_deliveries)

    @cached_property
    def gate(self) -> Gate:
        """What holds messages back in this worker: see :mod:`celery_dlq.worker.gate`."""
        from celery_dlq.worker.brake import Brake, Limits
        from celery_dlq.worker.gate import Gate, announce

        chosen = self.settings
        limits = Limits(
            chosen.brake_failures, chosen.brake_window, chosen.brake_pause, chosen.brake_pause_max
        )
        return Gate(
            Brake(limits, announce, time.monotonic) if chosen.brake_failures else None,
            lambda: self.writer.is_full,
            spare=chosen.brake_hold,
            hold_s=chosen.brake_hold_time,
        )

    def record(
        self, what: DeadLetter | Outcome, then: Callable[[], object], *, urgent: bool = False
    ) -> None:
        """Make ``what`` durable, then call ``then``. What is urgent waits for no others to come."""
        self.gate.note(what)
        self.recorder.record(what, then, urgent=urgent)

    def drain_spool(self) -> Iterator[Drained]:
        """Bring spooled letters into the store, in steps that say what each has done. What a living
        worker still writes to is left to it.

        :raises StoreError: the store failed; what is left stays in the spool.
        """
        yield from self.spool.drain(self._save)

    def store_records(self, records: Sequence[Record]) -> list[int]:
        """Store letters and outcomes, which may be stored already; returns the places of those that
        the store refuses.

        :raises StoreError: the store failed.
        """
        return hand_over(records, self._save)

    def _save(self, records: Sequence[Record]) -> None:
        from celery_dlq.worker.writer import save

        save(self.store, records)

    def record_now(self, letter: DeadLetter) -> None:
        """Make ``letter`` durable before returning, also from a signal handler."""
        self.recorder.record_now(letter)

    def _spool_apart(self, what: DeadLetter | Outcome) -> None:
        from celery_dlq.worker.writer import keep_in_spool

        # The writer's own may be in the middle of a line.
        with contextlib.closing(self._new_spool()) as spool:
            keep_in_spool(spool, [what])

    def _on_worker_shutdown(self, sender: Any, **_: Any) -> None:
        # The pool is joined by now: no letter can come any more.
        if getattr(sender, "app", None) is self.app and "writer" in vars(self):
            self.writer.stop()

    def plan(self, wanted: Filter, *, limit: int | None = None) -> Plan:
        """What a redrive of ``wanted`` would do, without doing it. Frees claims whose lease has ended."""
        from celery_dlq.redrive.plan import make_plan

        self.app.loader.import_default_modules()
        self.store.rescue(datetime.now(timezone.utc))
        return make_plan(self.app, self.store, wanted, limit=limit)

    def redrive(
        self,
        wanted: Filter,
        *,
        who: str,
        limit: int | None = None,
        rate: float | None = None,
        on_progress: OnProgress | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Report:
        """Send the original messages of ``wanted`` back to their queues.

        :param limit: at most so many letters.
        :param rate: at most so many messages per second.
        :raises StoreError: the store failed; what was sent until then stays sent and marked.
        """
        from celery_dlq.redrive.engine import Redrive

        # A letter is sent only to a task that this app knows.
        self.app.loader.import_default_modules()
        return Redrive(self.app, self.store, self.settings).run(
            wanted, who=who, limit=limit, rate=rate,
            on_progress=on_progress, should_stop=should_stop,
        )  # fmt: skip

    def ingest(
        self,
        queue: str,
        *,
        to: str = "",
        limit: int | None = None,
        on_progress: OnIngested = lambda _report: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> IngestReport:
        """Bring the messages of a broker's dead-letter queue into the store, and remove them there.

        :param to: queue to which a redrive sends messages that do not say where they came from.
        :param limit: at most so many messages.
        :raises IngestError: the broker failed, has no such queue, or a message needs ``to``.
        :raises StoreError: the store failed. What was ingested until then stays so.
        """
        with self.open_ingestion(queue, to=to) as ingestion:
            return ingestion.run(limit=limit, on_progress=on_progress, should_stop=should_stop)

    @contextlib.contextmanager
    def open_ingestion(
        self, queue: str, *, to: str = "", worker: str = "", need_place: bool = True
    ) -> Iterator[Ingestion]:
        """An ingestion of ``queue`` on a connection of its own, which may be run again and again.

        :param worker: name of the worker it runs in.
        :param need_place: whether a message that does not say where it came from is an error.
        """
        from celery_dlq.ingest.engine import Ingestion
        from celery_dlq.ingest.letters import LetterMaker
        from celery_dlq.ingest.source import open_source

        maker = LetterMaker(queue=queue, to=to, worker=worker, wiring=self)
        with open_source(self.app, queue) as source:
            yield Ingestion(
                source, self.store, maker,
                batch_size=self.settings.batch_size, need_place=need_place,
            )  # fmt: skip


DLQTask.wire = DeadLetterQueue.of
