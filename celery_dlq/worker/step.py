"""The bootsteps of capture: one ties it to a consumer and its event loop, and one ends it with the worker."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
from celery import bootsteps
from celery.signals import beat_embedded_init
from celery.utils.log import get_logger

from celery_dlq.base.unpack import bound_decoders
from celery_dlq.errors import SettingsError
from celery_dlq.recorder.flight import CONFIRM_S
from celery_dlq.recorder.owner import leave_pools
from celery_dlq.worker.body.ending import last_run
from celery_dlq.worker.body.log import RunLogHandler
from celery_dlq.worker.broker_limits import not_covered
from celery_dlq.worker.builtin_tasks import capture_carriers, keep_chord_headers
from celery_dlq.worker.capture import Capture
from celery_dlq.worker.celery_quirks.brokers import catch_unreadable, is_on_redis
from celery_dlq.worker.celery_quirks.pools import keep_jobs, renew_locks_after_fork
from celery_dlq.worker.celery_quirks.redis_take import Taker, why_not
from celery_dlq.worker.end.handover import HandOver
from celery_dlq.worker.foreign import Foreign
from celery_dlq.worker.uncaptured import gaps

logger: logging.Logger = get_logger(__name__)

#: Seconds after which the interpreter lets another thread run, in a parent whose tasks run elsewhere.
#: With Python's 0.005 the event loop waits that long for the writer after each of its socket calls;
#: in a storm of failures that costs throughput (``make bench`` shows how much).
SWITCH_INTERVAL_S = 0.001


def _leave_pools(**_: Any) -> None:
    """Called in the process of an embedded beat."""
    leave_pools()


beat_embedded_init.connect(_leave_pools)


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

    requires = ("celery.worker.consumer.tasks:Tasks",)

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
                _prefer_the_event_loop()
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
    queue.grouping  # noqa: B018 - imports the recipe for fingerprints
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


def _prefer_the_event_loop() -> None:
    """Tune the interpreter for a process whose one busy thread is its event loop."""
    sys.setswitchinterval(min(SWITCH_INTERVAL_S, sys.getswitchinterval()))
    # Letters that wait for their commit outlive the young generations. Without this, the collector would walk
    # through the modules that were imported since the fork once for every few hundred letters.
    gc.freeze()
