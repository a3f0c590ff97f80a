"""The composition root and Python API: builds an app's parts, each on first use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from celery_dlq.api.automations import AutomationAPI
from celery_dlq.api.groups import Groups
from celery_dlq.api.metrics import MetricsAPI
from celery_dlq.api.retention import RetentionAPI
from celery_dlq.base.redact import Redactor
from celery_dlq.base.sealing import Keyring
from celery_dlq.classify import Rejudged, rejudge
from celery_dlq.hooks.event import EventKind
from celery_dlq.model.letter import DeadLetter
from celery_dlq.outbox.sender import Outbox
from celery_dlq.recorder.flight import FlightRecorder
from celery_dlq.spool.segment import Record
from celery_dlq.store.base import pages
from celery_dlq.store.database.client import Client, Role
from celery_dlq.worker.body.judge import classifier_of
from celery_dlq.worker.task import DLQTask

if TYPE_CHECKING:
    from celery_dlq.api.requests import Requests
    from celery_dlq.ingest.ingestion import IngestReport, OnIngested
    from celery_dlq.store import Store
    from celery_dlq.store.base import Filter
    from celery_dlq.store.listener import Notes
    from celery_dlq.worker.admission.doubts import Doubts
    from celery_dlq.worker.admission.valve import Valve
    from celery_dlq.worker.broker_limits import Hold
    from celery_dlq.worker.consumer import Capture
    from celery_dlq.worker.writing.saver_process import SaverProcess
    from celery_dlq.worker.writing.store_calls import StoreHealth
    from celery_dlq.worker.writing.writer import Writer


#: The number of letters whose tracebacks are read together. Each traceback may have some ten kilobytes.
_REJUDGED_TOGETHER = 200


class DeadLetterQueue(AutomationAPI, RetentionAPI, MetricsAPI):
    """The dead-letter queue of a Celery app.

    ``base=DLQTask`` on a task is the whole installation; use this class only for the Python API. An app
    has one queue: :meth:`of` returns it.
    """

    def __init__(self, app: Any) -> None:
        self.app = app
        self.client: Client = Client()
        app.dead_letter_queue = self
        #: All tasks that the app sends pass here: see ``dlq_unsent``.
        self.sending: Outbox = Outbox(self)
        app.send_task = self.sending.send_task
        #: The classes of sessions in whose transactions messages are written.
        self.outbox_sessions: tuple[type, ...] = ()
        #: The workers that run in this process.
        self._workers: WeakSet[Any] = WeakSet()
        self._counting = threading.Lock()
        app.steps["worker"].add("celery_dlq.worker.consumer:LastStep")
        app.steps["consumer"].add("celery_dlq.worker.consumer:CaptureStep")
        app.steps["worker"].add("celery_dlq.upkeep.step:UpkeepStep")

    @classmethod
    def of(cls, app: Any) -> DeadLetterQueue:
        """The dead-letter queue of ``app``, made on first use. Invalid settings do not raise here, but
        in :meth:`check_settings` and wherever they are needed."""
        return app.__dict__.get("dead_letter_queue") or cls(app)

    def outbox(self, sessions: Any) -> None:
        """Write the messages of tasks with ``dlq_unsent = "commit"`` in the open transactions of these
        SQLAlchemy sessions, and send them after the commit. Django's transactions need no call.

        :param sessions: a ``sessionmaker``, a ``scoped_session`` or a ``Session`` class; for an
            ``AsyncSession``, its ``sync_session_class``.
        :raises SettingsError: it is something else, or its database is not that of ``dlq_store_url``.
        """
        from celery_dlq.outbox.commit import register

        register(self, sessions)

    @cached_property
    def groups(self) -> Groups:
        """Finds groups of letters, and decides about them."""
        return Groups(self)

    @cached_property
    def requests(self) -> Requests:
        """Approves and refuses acts that wait for a second person."""
        from celery_dlq.api.requests import Requests

        return Requests(self)

    @cached_property
    def store_health(self) -> StoreHealth:
        """The part of a worker that logs whether the store works."""
        from celery_dlq.worker.writing.store_calls import StoreHealth

        return StoreHealth(self.spool.directory)

    def _new_writer(self) -> Writer:
        from celery_dlq.worker.writing.writer import Writer

        return Writer(
            lambda: self.store if self.meter is None else self.meter.timed(self.store),
            self.new_spool(),
            # Longer than the database's own timeouts, because their errors say more.
            timeout=2 * self.settings.store_timeout,
            health=self.store_health,
        )

    def _new_saver_process(self) -> SaverProcess:
        from celery_dlq.worker.writing.saver_process import SaverProcess

        url, timeout = self.settings.store_url, self.settings.store_timeout
        values = self.settings.search_values
        secrets = self.settings.redact, self.settings.search_redacted_key
        announcer, client = self.announcer(), Client(Role.SCRIBE, self.client.node)
        process = SaverProcess(
            partial(
                _open_saver,
                url,
                timeout,
                values,
                client,
                secrets,
                self.keyring,
                self.settings.namespaces,
            ),
            lambda notes: notes.notify(announcer),
            wants=lambda: self.hooks.wants(EventKind.DEAD_LETTER),
            timeout=2 * timeout,
        )
        return process if self.meter is None else self.meter.timed(process)

    @cached_property
    def hold(self) -> Hold:
        """How long the broker may hold a retry."""
        from celery_dlq.worker.broker_limits import hold_of

        return hold_of(self.app, self.settings.park_after)

    @cached_property
    def doubts(self) -> Doubts:
        """The messages that the broker may have taken, although it did not confirm them."""
        from celery_dlq.worker.admission.doubts import Doubts

        return Doubts(self.hold.place)

    @cached_property
    def capture(self) -> Capture:
        """The capture for requests that no consumer's strategy has made."""
        return self.new_capture()

    def new_capture(self) -> Capture:
        """A new capture for one consumer."""
        from celery_dlq.worker.consumer import Capture

        capture = Capture(
            self,
            self._new_writer,
            self._new_saver_process,
            self.spool_apart,
            lambda: FlightRecorder(
                self.recorder_dir,
                worker=self.client.node,
                release=self.settings.release,
                ring=self.keyring,
            ),
        )
        with self._counting:
            self.captures += (capture,)
        return capture

    @property
    def valves(self) -> Sequence[Valve]:
        """The valves of all consumers in this process; in a pool process, those of its parent."""
        return [capture.valve for capture in self.captures]

    def worker_starts(self, worker: Any) -> None:
        """Let ``worker`` share this app's store and hooks until :meth:`worker_ends`."""
        with self._counting:
            self._workers.add(worker)

    def worker_ends(self, worker: Any) -> None:
        """Note that ``worker`` has ended. If it was the last worker of this app in this process, end the
        threads of its hooks, after the waiting events, and the connections to the database. Later uses start
        them again."""
        with self._counting:
            self._workers.discard(worker)
            ended = worker.consumer.dlq
            self.captures = tuple(one for one in self.captures if one is not ended)
            if self._workers:
                return
        self.hooks.finish()
        if "store" in vars(self):
            self.store.close()

    def unpark(self, wanted: Filter, *, who: str) -> int:
        """Make the parked retries of ``wanted`` due now, on the broker of this app; returns their
        number. A worker sends them. The states in ``wanted`` are ignored.

        :raises StoreError: the store failed; nothing was changed.
        """
        return self.store.parked.make_due(
            wanted, place=self.hold.place, who=who, now=self.store.now()
        )

    def rejudge(self, wanted: Filter) -> Iterator[Rejudged]:
        """The verdicts of today's rules on the letters of ``wanted``; the rules of each letter's task come
        first. The letters have neither attempts nor messages. Nothing is changed."""
        self.app.loader.import_default_modules()
        for page in pages(self.store.letters.find, wanted, _REJUDGED_TOGETHER):
            # Lists leave out the tracebacks, which a verdict needs. Reading them one by one took most of the
            # time.
            tracebacks = self.store.letters.read_tracebacks([item.task_id for item in page.letters])
            for item in page.letters:
                yield self._rejudge(item.with_(traceback=tracebacks.get(item.task_id, "")))

    def _rejudge(self, letter: DeadLetter) -> Rejudged:
        task = self.app.tasks.get(letter.task)
        if not isinstance(task, DLQTask):
            return rejudge(letter, self.classifier)
        if type(task).classify is not DLQTask.classify:
            return Rejudged(letter, untold=f"{task.name}.classify() judges the exception itself")
        return rejudge(letter, classifier_of(task))

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
        """Bring the messages of a broker's dead-letter queue into the store, and remove them from the broker.

        :param who: the name in the audit.
        :param to: queue to which a redrive sends messages that do not say where they came from.
        :param limit: at most this many messages.
        :raises IngestError: the broker failed, has no such queue, or a message needs ``to``.
        :raises StoreError: the store failed. Messages that were already ingested stay ingested.
        """
        from celery_dlq.base.unpack import bound_decoders
        from celery_dlq.ingest.ingestion import Ingestion
        from celery_dlq.ingest.letters import LetterMaker
        from celery_dlq.ingest.source import open_source

        store = self.store  # opened before a message is taken
        act = NotedAct(lambda: store, who=who, act="ingest", detail={"queue": queue, "to": to})

        def note(report: IngestReport) -> None:
            act.reached(report.removed)
            on_progress(report)

        bound_decoders(self.settings.unpacked_max_size)
        maker = LetterMaker(queue=queue, to=to, wiring=self)
        with open_source(self.app, queue) as source:
            ingestion = Ingestion(source, store, maker)
            return ingestion.run(limit=limit, on_progress=note, should_stop=should_stop)


class NotedAct:
    """An act on letters that come into the store. The audit has one row for it, which is written with the
    first letters and updated with the others. So an act that is cut off is recorded as far as it went.

    :param store: opens the store; called once, with the first letters.
    :param detail: the subject of the act, for the audit.
    """

    def __init__(
        self, store: Callable[[], Store], *, who: str, act: str, detail: Mapping[str, object]
    ) -> None:
        self._store, self._who, self._act, self._detail = cache(store), who, act, detail
        self._row: int | None = None
        self._count = 0

    def reached(self, count: int) -> None:
        """Record that the act was done to ``count`` letters so far.

        :raises StoreError: the store failed.
        """
        more, self._count = count - self._count, count
        if more:
            store = self._store()
            self._row = store.audit.note(
                who=self._who,
                act=self._act,
                detail=self._detail,
                count=more,
                at=store.now(),
                row=self._row,
            )


def _open_saver(
    url: str,
    timeout: float,
    value_limit: int,
    client: Client,
    secrets: tuple[Iterable[str], str] = ((), ""),
    ring: Keyring | None = None,
    namespaces: Sequence[str] | None = ("",),
) -> Callable[[Sequence[Record], bool], Notes]:
    """The function that saves in the saver process; it returns the notes for the worker's hooks."""
    from celery_dlq.store.listener import Notes
    from celery_dlq.store.sql import SQLStore
    from celery_dlq.worker.writing.store_calls import write

    def save_and_note(records: Sequence[Record], letters: bool) -> Notes:
        write(store, records)
        return notes.take(letters=letters)

    notes = Notes()
    store = SQLStore(
        url, timeout=timeout, listener=notes, client=client, value_limit=value_limit,
        redactor=Redactor(*secrets), ring=ring, namespaces=namespaces,
    )  # fmt: skip
    return save_and_note


DLQTask.wire = DeadLetterQueue.of
