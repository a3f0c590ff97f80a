"""The composition root and Python API: puts an app's parts together, each made on first use."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from celery import signals

from celery_dlq.classify import Classifier, Rejudged, misnamed, rejudge
from celery_dlq.errors import SettingsError
from celery_dlq.hooks.api import HooksAPI
from celery_dlq.hooks.event import EventKind
from celery_dlq.letter import DeadLetter, Outcome
from celery_dlq.metrics.api import MetricsAPI
from celery_dlq.redact import Redactor
from celery_dlq.redrive.api import RedriveAPI
from celery_dlq.settings import Settings
from celery_dlq.spool import Drained, Record, Spool, hand_over
from celery_dlq.store.api import GroupAPI
from celery_dlq.store.noted_act import NotedAct
from celery_dlq.worker.body.judge import classifier_of, own_rules
from celery_dlq.worker.task import DLQTask

if TYPE_CHECKING:
    from celery_dlq.ingest.engine import Ingestion, IngestReport, OnIngested
    from celery_dlq.redrive.operations import Operations
    from celery_dlq.store.base import Filter, Store
    from celery_dlq.store.listener import Notes
    from celery_dlq.worker.admission.breaker import Breaker
    from celery_dlq.worker.admission.copies import Copies
    from celery_dlq.worker.admission.deliveries import Deliveries
    from celery_dlq.worker.admission.gate import Gate
    from celery_dlq.worker.body.hold import Hold
    from celery_dlq.worker.recording.recorder import Recorder
    from celery_dlq.worker.recording.scribe import Scribe
    from celery_dlq.worker.recording.writer import Writer


class DeadLetterQueue(RedriveAPI, GroupAPI, HooksAPI, MetricsAPI):
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
        app.steps["worker"].add("celery_dlq.upkeep.step:UpkeepStep")

    @classmethod
    def of(cls, app: Any) -> DeadLetterQueue:
        """The dead-letter queue of ``app``, made on first use.

        :raises SettingsError: a ``dlq_*`` setting is not valid.
        """
        queue = app.__dict__.get("dead_letter_queue") or cls(app)
        if app.finalized:
            queue.classifier  # noqa: B018 - validates, once the app's configuration is complete
        return queue

    @cached_property
    def settings(self) -> Settings:
        """The validated settings."""
        return Settings.from_app(self.app)

    @cached_property
    def classifier(self) -> Classifier:
        """The app's rules before the built-in ones."""
        return Classifier.from_settings(self.settings)

    def check_rules(self) -> None:
        """Check that every exception named in the rules of the app and its tasks is there. Imports
        what is named; judging a failure never does.

        :raises SettingsError: a name leads nowhere; its rule would never hold.
        """
        problems = [*misnamed(self.classifier.rules)]
        for name, task in sorted(self.app.tasks.items()):
            if isinstance(task, DLQTask):
                problems += (f"task {name}: {problem}" for problem in misnamed(own_rules(task)))
        if problems:
            raise SettingsError(f"Rules that would never hold: {' '.join(problems)}")

    def check_store_url(self) -> None:
        """Check that the store is of a kind that is supported. Connects to nothing.

        :raises SettingsError: no letter could ever be stored there.
        """
        from celery_dlq.store.drivers import parse_url

        parse_url(self.settings.store_url)

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

        store = SQLStore.from_settings(self.settings, self.announcer())
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
        from celery_dlq.worker.recording.writer import Writer

        return Writer(
            self._store_to_write,
            self.spool,
            size=self.settings.queue_size,
            batch_size=self.settings.batch_size,
            # Later than the database's own timeouts, whose errors say more.
            patience=2 * self.settings.store_timeout,
        )

    def _store_to_write(self) -> Store:
        return self.store if self.meter is None else self.meter.timed(self.store)

    @cached_property
    def scribe(self) -> Scribe:
        """The process that saves in a storm, where tasks run in processes of their own."""
        from celery_dlq.worker.recording.scribe import Scribe

        url, timeout = self.settings.store_url, self.settings.store_timeout
        announcer = self.announcer()
        scribe = Scribe(
            partial(_open_saver, url, timeout),
            lambda notes: notes.tell(announcer),
            wants=lambda: self.hooks.wants(EventKind.DEAD_LETTER),
            timeout=2 * timeout,
        )
        return scribe if self.meter is None else self.meter.timed(scribe)

    @cached_property
    def recorder(self) -> Recorder:
        """What requests hand their letters to."""
        from celery_dlq.worker.recording.recorder import Recorder

        return Recorder(self.writer, self._spool_apart)

    @cached_property
    def hold(self) -> Hold:
        """For how long the broker may hold a retry."""
        from celery_dlq.worker.body.hold import hold_of

        return hold_of(self.app, self.settings.park_after)

    @cached_property
    def deliveries(self) -> Deliveries:
        """Counts the deliveries of messages that do not end."""
        from celery_dlq.worker.admission.deliveries import Deliveries

        return Deliveries(self.recorder, self.settings.max_deliveries)

    @cached_property
    def copies(self) -> Copies:
        """Lets one copy of each message run."""
        from celery_dlq.worker.admission.copies import Copies

        return Copies(self.recorder)

    @cached_property
    def gate(self) -> Gate:
        """What holds messages back in this worker: see :mod:`celery_dlq.worker.admission.gate`."""
        from celery_dlq.worker.admission.brake import Brake, Limits
        from celery_dlq.worker.admission.gate import Gate, announce

        chosen = self.settings
        limits = Limits(
            chosen.brake_failures, chosen.brake_window, chosen.brake_pause, chosen.brake_pause_max
        )
        return Gate(
            Brake(limits, announce, time.monotonic) if chosen.brake_failures else None,
            self.writer.is_full,
            spare=chosen.brake_hold,
            hold_s=chosen.brake_hold_time,
        )

    @cached_property
    def breaker(self) -> Breaker:
        """What parks messages whose circuit is open: see :mod:`celery_dlq.worker.admission.breaker`."""
        from celery_dlq.worker.admission.breaker import Breaker
        from celery_dlq.worker.admission.circuits import CircuitBoard

        return Breaker(self, self.recorder, CircuitBoard(self.writer))

    def record(
        self, what: DeadLetter | Outcome, then: Callable[[], object], *, urgent: bool = False
    ) -> None:
        """Make ``what`` durable, then call ``then``. What is urgent waits for no others to come."""
        self.gate.note(what)
        if self.meter is not None and isinstance(what, DeadLetter):
            then = self.meter.dead_lettered(what, then)
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
        from celery_dlq.worker.recording.writer import save

        save(self.store, records)

    def record_now(self, letter: DeadLetter) -> None:
        """Make ``letter`` durable before returning, also from a signal handler."""
        self.recorder.record_now(letter)

    def _spool_apart(self, what: DeadLetter | Outcome) -> None:
        from celery_dlq.worker.recording.writer import keep_in_spool

        # The writer's own may be in the middle of a line.
        with contextlib.closing(self._new_spool()) as spool:
            keep_in_spool(spool, [what])

    def _on_worker_shutdown(self, sender: Any, **_: Any) -> None:
        # The pool is joined by now: no letter can come any more.
        if getattr(sender, "app", None) is self.app and "writer" in vars(self):
            self.writer.stop()
            self.hooks.finish()

    def release(self, wanted: Filter, *, who: str) -> int:
        """Let the parked retries of ``wanted`` run now instead of when they are due, on the broker of
        this app; returns how many. A worker sends them. The states of ``wanted`` do not count.

        :raises StoreError: the store failed; nothing was changed.
        """
        now = datetime.now(timezone.utc)
        return self.store.make_due(wanted, place=self.hold.place, who=who, now=now)

    def rejudge(self, wanted: Filter) -> Iterator[Rejudged]:
        """What today's rules, those of each letter's task first, say of the letters of ``wanted``.
        Nothing is changed."""
        self.app.loader.import_default_modules()
        after = None
        while True:
            page = self.store.find(wanted, limit=self.settings.batch_size, after=after)
            # Lists leave out what a judgement needs.
            for found in filter(None, (self.store.get(item.task_id) for item in page.letters)):
                yield self._rejudge(found)
            after = page.next
            if after is None:
                return

    def _rejudge(self, letter: DeadLetter) -> Rejudged:
        task = self.app.tasks.get(letter.task)
        if not isinstance(task, DLQTask):
            return rejudge(letter, self.classifier)
        if type(task).classify is not DLQTask.classify:
            return Rejudged(letter, untold=f"{task.name}.classify() judges the exception itself")
        return rejudge(letter, classifier_of(task))

    @cached_property
    def redrives(self) -> Operations:
        """Makes and runs operations."""
        from celery_dlq.redrive.means import Means
        from celery_dlq.redrive.operations import Operations

        # A letter is sent only to a task that this app knows.
        self.app.loader.import_default_modules()
        means = Means(
            app=self.app, store=self.store, settings=self.settings,
            redactor=self.redactor, reports=self._reports,
        )  # fmt: skip
        return Operations(means)

    def _reports(self, task: str) -> bool:
        """Whether a worker says what becomes of the messages of ``task``."""
        return isinstance(self.app.tasks.get(task), DLQTask)

    def ingest(
        self,
        queue: str,
        *,
        who: str,
        to: str = "",
        limit: int | None = None,
        on_progress: OnIngested = lambda _report: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> IngestReport:
        """Bring the messages of a broker's dead-letter queue into the store, and remove them there.

        :param who: whom the audit names.
        :param to: queue to which a redrive sends messages that do not say where they came from.
        :param limit: at most so many messages.
        :raises IngestError: the broker failed, has no such queue, or a message needs ``to``.
        :raises StoreError: the store failed. What was ingested until then stays so.
        """
        act = NotedAct(self.store, who=who, act="ingest", detail={"queue": queue, "to": to})

        def note(report: IngestReport) -> None:
            act.reached(report.removed)
            on_progress(report)

        with self.open_ingestion(queue, to=to) as ingestion:
            return ingestion.run(limit=limit, on_progress=note, should_stop=should_stop)

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


def _open_saver(url: str, timeout: float) -> Callable[[Sequence[Record], bool], Notes]:
    """What the scribe's process saves by: returns what the worker's hooks are to be told."""
    from celery_dlq.store.listener import Notes
    from celery_dlq.store.sql import SQLStore
    from celery_dlq.worker.recording.writer import save

    def save_and_note(records: Sequence[Record], letters: bool) -> Notes:
        save(store, records)
        return notes.take(letters=letters)

    notes = Notes()
    store = SQLStore(url, timeout=timeout, listener=notes)
    return save_and_note


DLQTask.wire = DeadLetterQueue.of
