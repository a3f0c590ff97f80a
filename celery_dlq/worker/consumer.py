"""Puts a worker together: the capture of each consumer, which is its writing and its admission, and the
bootsteps that tie it to the consumer and its event loop, and end it with the worker.

A process may have several consumers: workers that run in threads, one after the other or at the same time.
Each consumer has a writer's thread and guards of its own. The parts that the consumers of an app share
(settings, rules, the store, hooks) belong to the composition root. All this runs in the worker's parent.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import click
from celery import bootsteps
from celery.utils.log import get_logger

from celery_dlq.base.unpack import bound_decoders
from celery_dlq.errors import SettingsError
from celery_dlq.model.letter import DeadLetter, Outcome
from celery_dlq.recorder.flight import CONFIRM_S, FlightRecorder, Uncovered
from celery_dlq.recorder.owner import BEAT_S
from celery_dlq.recorder.tags import Tags
from celery_dlq.worker.admission import Admission
from celery_dlq.worker.admission.copies import Copies
from celery_dlq.worker.admission.deliveries import Deliveries
from celery_dlq.worker.admission.isolation import IsolatedRun
from celery_dlq.worker.admission.valve import Valve
from celery_dlq.worker.batches import take_over
from celery_dlq.worker.body.ending import last_run
from celery_dlq.worker.body.log import RunLogHandler
from celery_dlq.worker.broker_limits import not_covered
from celery_dlq.worker.builtin_tasks import capture_carriers, keep_chord_headers
from celery_dlq.worker.celery_quirks.brokers import catch_unreadable, is_on_redis
from celery_dlq.worker.celery_quirks.pools import GreenShutdown, keep_jobs, renew_locks_after_fork
from celery_dlq.worker.celery_quirks.redis_take import Taker, why_not
from celery_dlq.worker.celery_quirks.unacked import Unacknowledged
from celery_dlq.worker.celery_quirks.visibility import kind_of
from celery_dlq.worker.end.classes import bound
from celery_dlq.worker.end.handover import HandOver
from celery_dlq.worker.failure import logged
from celery_dlq.worker.foreign import Foreign
from celery_dlq.worker.reception import Reception
from celery_dlq.worker.secrecy import keep_from_log
from celery_dlq.worker.uncaptured import gaps
from celery_dlq.worker.wiring import Wiring
from celery_dlq.worker.writing.loop_callbacks import LoopCallbacks
from celery_dlq.worker.writing.saver_process import SaverProcess
from celery_dlq.worker.writing.writer import Writer

logger: logging.Logger = get_logger(__name__)

#: Seconds after which the interpreter lets another thread run, in a parent whose tasks run elsewhere.
#: With Python's 0.005 the event loop waits that long for the writer after each of its socket calls;
#: in a storm of failures that costs throughput (``make bench`` shows how much).
SWITCH_INTERVAL_S = 0.001


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
                with logged(logger, "celery_dlq cannot show that this worker lives"):
                    show()


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
                # First, so that the store is not asked about messages that go back to the broker from here.
                self.valve,
                self.copies,
                # After these two: a message that they let go is still parked if its circuit has opened in the
                # meantime.
                self.valve.parking,
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
        return Copies(self.desk, self.app.doubts)

    @cached_property
    def valve(self) -> Valve:
        """Parks messages whose circuit is open; holds those of a task that only fails here, and all of them
        while the writer is full."""
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


@contextmanager
def ends_in_one_line() -> Iterator[None]:
    """In Celery's command line, wrong settings end ``celery worker`` with one line instead of a traceback
    through Celery. Elsewhere they are raised as they are."""
    try:
        yield
    except SettingsError as error:
        if click.get_current_context(silent=True) is None:
            raise
        raise click.ClickException(str(error)) from error


class LastStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Runs in the worker's parent. It starts before all other steps and stops after them, when the pool has
    been joined and no more letters come."""

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        dlq = worker.app.dead_letter_queue
        # Before anything is started.
        with ends_in_one_line():
            dlq.check_settings()
            dlq.keyring  # noqa: B018 - no letter can be stored without the keys
            dlq.settings.own_namespace  # noqa: B018 - with several, it would not know what to write
        self._log = RunLogHandler(dlq.settings, dlq.redactor, last_run)

    def include(self, parent: Any) -> bool:
        """Take the first place among the worker's steps, which stop in the reverse order."""
        parent.steps.insert(0, self)
        return True

    def start(self, worker: Any) -> None:
        """Called when the worker is about to start."""
        dlq = worker.app.dead_letter_queue
        dlq.worker_starts(worker)
        if dlq.settings.log_lines:
            # The pool's processes inherit it.
            self._log.join()
        if dlq.settings.recorder:
            worker.consumer.dlq.flight_recorder.prepare()
        if _forks(worker.pool_cls):
            # The collector of a process would write to every object that the parent has made, and each page
            # that is written to is copied. With this, a process has some 10 MB less for itself.
            gc.freeze()

    def stop(self, worker: Any) -> None:
        """Called when the worker has shut down, for whatever reason."""
        worker.consumer.dlq.close()
        worker.app.dead_letter_queue.worker_ends(worker)
        self._log.leave()

    terminate = stop


class CaptureStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Runs in the worker's parent. It is made once for a consumer, and started once for each connection to
    the broker."""

    requires: tuple[str, ...] = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        _check(consumer.app)
        if not _forks(consumer.pool):
            # Otherwise when the pool has forked (upkeep/step.py), because this imports SQLAlchemy: each of
            # the pool's processes would have a copy of some 10 MB.
            consumer.app.dead_letter_queue.check_store_url()
        self._confirming: Any = None
        self._taker: Taker | None = None
        self._capture: Capture = consumer.app.dead_letter_queue.new_capture()
        consumer.dlq = self._capture
        # Before the pool's processes are made.
        capture_carriers(consumer.app)
        keep_chord_headers(consumer.app)
        if _forks(consumer.pool):
            renew_locks_after_fork(consumer.app)
        # Celery's steps and strategies read the consumer's handlers when they start, before this step does.
        foreign = Foreign(consumer, self._capture)
        foreign.join()
        if consumer.app.dead_letter_queue.settings.stall_after:
            self._capture.reception.join(consumer)
        enter_pool = HandOver(consumer, foreign.refuse).join()
        self._capture.admission.join(consumer, enter_pool)

    def start(self, consumer: Any) -> None:
        """Called when the broker is connected."""
        self._capture.writer.start()
        self._taker = _join_channel(consumer, self._taker)
        self._capture.admission.start()
        self._capture.show_signs_of_life()
        is_first = self._confirming is None
        self._confirming = consumer.timer.call_repeatedly(
            CONFIRM_S, self._capture.flight_recorder.confirm
        )
        keep_jobs(consumer.pool)
        if _forks(consumer.pool):
            if is_first:
                # For a process whose one busy thread is its event loop. Letters that wait for their commit
                # outlive the young generations. Without freeze(), the collector would walk through the
                # modules that were imported since the fork once for every few hundred letters.
                sys.setswitchinterval(min(SWITCH_INTERVAL_S, sys.getswitchinterval()))
                gc.freeze()
            self._capture.writer.employ(self._capture.saver_process)

    def register_with_event_loop(self, consumer: Any, hub: Any) -> None:
        """Called when the event loop is about to run; after a lost connection it is a new one."""
        self._capture.desk.join_loop(hub)

    def stop(self, consumer: Any) -> None:
        """Called when the connection is lost, or the worker shuts down."""
        if self._confirming is not None:
            self._confirming.cancel()
        self._capture.deliveries.stop()
        self._capture.admission.stop()
        self._capture.desk.leave_loop()

    def info(self, consumer: Any) -> dict[str, Any]:
        """What ``celery inspect stats`` shows of this package."""
        queue, stall = consumer.app.dead_letter_queue, self._capture.reception.stall
        return {
            "dlq": {
                "stalled": None if stall is None else stall.to_dict(),
                "unwritten": self._capture.writer.waiting,
                **self._capture.valve.status(),
                "recorded": self._capture.flight_recorder.recorded,
                "unrecorded": self._capture.flight_recorder.uncovered,
                "hooks": queue.hooks.status(),
                "handlers": {one.name: one.version for one in queue.handlers.values()},
            }
        }


def _join_channel(consumer: Any, before: Taker | None) -> Taker | None:
    """Keep messages on Redis that kombu would lose, or give back too late or too early.

    :param before: what this function returned for the connection before this one.
    """
    channel, app = consumer.task_consumer.channel, consumer.app
    tags = consumer.dlq.keep_unacknowledged(channel)
    if not is_on_redis(channel):
        return None
    queue = next(iter(app.amqp.queues.consume_from), app.conf.task_default_queue)
    refused = why_not(channel, queue)
    if refused:
        logger.warning("a killed worker can lose a message that Redis gives to it: %s", refused)
        catch_unreadable(channel)
        return None
    taker = Taker(channel, tags, before)
    # In this order: unreadable items are looked for among those that were taken.
    catch_unreadable(channel, taker.noted)
    logger.info("takes messages from Redis in one step")
    return taker


def _check(app: Any) -> None:
    """Check what can be checked only when the app's modules are loaded, because its rules and hooks may name
    their contents. Log a warning for each task that is not captured completely.

    :raises SettingsError: a setting, rule or hook is wrong.
    :raises MissingExtra: a setting needs a library that is not installed.
    """
    queue = app.dead_letter_queue
    queue.check_archive_url()
    queue.check_rules()
    queue.hooks.check()
    queue.grouping, queue.subject_function  # noqa: B018 - imports functions of the user
    if queue.keyring is not None:  # made now, because no letter can be stored without the keys
        keep_from_log(queue.keyring, app.tasks)
    queue.meter  # noqa: B018 - made now, so that a missing library is an error now
    bound_decoders(queue.settings.unpacked_max_size)
    why = not_covered(app)
    if why:
        logger.warning(why)
    for gap in gaps(app):
        logger.warning("task %s: %s", gap.task, gap.why)


def _forks(pool: Any) -> bool:
    """Whether ``pool``, or a pool of this class, runs tasks in processes that it forks when it starts."""
    return bool(getattr(pool, "uses_semaphore", False))
