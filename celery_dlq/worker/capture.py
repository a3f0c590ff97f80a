"""The capture of one consumer: its writing and its admission.

A process may have several consumers: workers that run in threads, one after the other or at the same time.
Each consumer has a writer's thread and guards of its own. The parts that the consumers of an app share
(settings, rules, the store, hooks) belong to the composition root.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from celery_dlq.model.letter import DeadLetter, Outcome
from celery_dlq.recorder import FlightRecorder, Uncovered
from celery_dlq.recorder.owner import BEAT_S
from celery_dlq.recorder.tags import Tags
from celery_dlq.worker.admission import Admission
from celery_dlq.worker.admission.copies import Copies
from celery_dlq.worker.admission.deliveries import Deliveries
from celery_dlq.worker.admission.isolation import IsolatedRun
from celery_dlq.worker.admission.valve import Valve
from celery_dlq.worker.batches import take_over
from celery_dlq.worker.celery_quirks.pools import GreenShutdown
from celery_dlq.worker.celery_quirks.unacked import Unacknowledged
from celery_dlq.worker.celery_quirks.visibility import kind_of
from celery_dlq.worker.end.classes import bound
from celery_dlq.worker.reception import Reception
from celery_dlq.worker.wiring import Wiring
from celery_dlq.worker.writing.loop_callbacks import LoopCallbacks
from celery_dlq.worker.writing.saver_process import SaverProcess
from celery_dlq.worker.writing.writer import Writer

logger: logging.Logger = logging.getLogger(__name__)


class _SignsOfLife(threading.Thread):
    """Calls each of ``show`` again and again. A thread of its own, because others end when a shutdown
    begins, and the worker may then wait for its last tasks for a long time.

    :param pause_s: seconds from one time to the next.
    """

    def __init__(self, pause_s: float, *show: Callable[[], object]) -> None:
        super().__init__(name="dlq-signs-of-life", daemon=True)
        self._pause_s, self._show, self.ended = pause_s, show, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(self._pause_s):
            for show in self._show:
                self._show_once(show)

    def _show_once(self, show: Callable[[], object]) -> None:
        try:
            show()
        except Exception:
            logger.exception("celery_dlq cannot show that this worker lives")


class Capture:
    """The writing and the admission of one consumer; everything else belongs to the app.

    :param app: the wiring of the consumer's app.
    :param make_writer: makes the thread that writes.
    :param make_saver_process: makes the process that saves in a storm.
    :param spool: keeps a record without the writer.
    :param make_flight_recorder: makes the files of messages that have not ended.
    """

    def __init__(
        self,
        app: Wiring,
        make_writer: Callable[[], Writer],
        make_saver_process: Callable[[], SaverProcess],
        spool: Callable[[DeadLetter | Outcome], object],
        make_flight_recorder: Callable[[], FlightRecorder],
    ) -> None:
        self.app = app
        self._spool = spool
        self._make_flight_recorder = make_flight_recorder
        self._make_writer, self._make_saver_process = make_writer, make_saver_process
        #: What the consumer receives.
        self.reception: Reception = Reception()
        self._signs: _SignsOfLife | None = None
        #: The messages that were received and not acknowledged; None without a visibility timeout.
        self._unacknowledged: Unacknowledged | None = None

    @cached_property
    def writer(self) -> Writer:
        """The thread that writes."""
        return self._make_writer()

    @cached_property
    def saver_process(self) -> SaverProcess:
        """The process that saves in a storm, if tasks run in processes of their own."""
        return self._make_saver_process()

    @cached_property
    def desk(self) -> LoopCallbacks:
        """Takes the records and questions of requests."""
        return LoopCallbacks(self.writer, self._spool)

    @cached_property
    def flight_recorder(self) -> FlightRecorder:
        """Keeps the messages that were acknowledged before they ended."""
        return self._make_flight_recorder()

    @cached_property
    def admission(self) -> Admission:
        """The guards that a message passes on its way to the pool, in this order. When a guard lets a held
        message go, the message passes the guards after it."""
        return Admission(
            [
                self.copies,
                # After the copies: a message that they let go is still held or parked if its circuit has
                # opened in the meantime.
                self.valve,
                # After the guards that let messages go later: none of these may run at the same time as an
                # isolated one.
                self.isolation,
                # Last before the pool: after a cold shutdown, no message may enter it.
                GreenShutdown(),
            ]
        )

    @cached_property
    def copies(self) -> Copies:
        """Lets one copy of each message run."""
        return Copies(self.desk)

    @cached_property
    def valve(self) -> Valve:
        """Parks messages whose circuit is open, and holds messages while the writer is full."""
        return Valve(self, self.desk, self.writer)

    @cached_property
    def isolation(self) -> IsolatedRun:
        """Holds other messages while one must be alone."""
        return IsolatedRun()

    @cached_property
    def deliveries(self) -> Deliveries:
        """Counts the deliveries of messages that do not end."""
        return Deliveries(
            self.desk, self.app.settings.max_deliveries,
            isolation=self.isolation, takes_back=self.app.hold.takes_back,
        )  # fmt: skip

    @contextmanager
    def strategy_of(self, task: Any, consumer: Any) -> Iterator[None]:
        """Within this block, Celery makes the strategy of ``task`` for ``consumer``: its requests are
        captured here."""
        take_over(task, consumer)
        with bound(task, self):
            yield

    def write(
        self, what: DeadLetter | Outcome, then: Callable[[], object], *, urgent: bool = False
    ) -> None:
        """Make ``what`` durable, then call ``then``. An urgent record does not wait for further records."""
        self.valve.note(what)
        if self.app.meter is not None and isinstance(what, DeadLetter):
            then = self.app.meter.dead_lettered(what, then)
        if urgent and self.desk.is_in_loop:
            then = self.valve.make_room(then)
        self.desk.write(what, then, urgent=urgent)

    def write_now(self, what: DeadLetter | Outcome) -> None:
        """Make ``what`` durable before returning, also from a signal handler."""
        self.desk.write_now(what)

    @property
    def trouble(self) -> Uncovered | None:
        """Why its messages run without a copy now; None if they do not."""
        # See _beat().
        return self.flight_recorder.trouble if "flight_recorder" in vars(self) else None

    def show_signs_of_life(self) -> None:
        """From now on, until :meth:`close`, show workers on other machines that this one lives. Called again
        after a lost connection, which changes nothing."""
        if self._signs is None:
            renews = self._unacknowledged
            pause_s = BEAT_S if renews is None else min(BEAT_S, renews.renews_every_s)
            self._signs = _SignsOfLife(pause_s, self._beat, self._renew)
            self._signs.start()

    def keep_unacknowledged(self, channel: Any) -> Tags | None:
        """Note the messages of a new ``channel`` that are not acknowledged, and keep other workers from
        getting them while this one lives. Does nothing on brokers without a visibility timeout.

        :returns: the notes, if they can be made.
        """
        self._unacknowledged = None
        settings, kind = self.app.settings, kind_of(channel)
        if not settings.restore_unacked or kind is None:
            return None
        tags = None
        if settings.recorder:
            tags = self.flight_recorder.tags(kind.broker_of(channel), kind.longest)
        self._unacknowledged = kind(channel, tags, self.flight_recorder.acknowledged)
        return tags

    def close(self) -> None:
        """Write the waiting records, then end the thread and the process that write. Called when the worker
        has ended. A letter that comes later, from a task that the worker did not wait for, is still
        written."""
        self.admission.leave()
        if "writer" in vars(self):
            self.writer.stop()
        if "flight_recorder" in vars(self):
            self.flight_recorder.close()
        if self._signs is not None:
            self._signs.ended.set()

    def _renew(self) -> None:
        if self._unacknowledged is not None:
            self._unacknowledged.renew()

    def _beat(self) -> None:
        # Another thread may be about to make the recorder, and there must not be two.
        if "flight_recorder" in vars(self):
            self.flight_recorder.beat()
