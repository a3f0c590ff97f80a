"""The consumer's bootstep: starts the writer with the worker and ties it to the event loop."""

from __future__ import annotations

import gc
import sys
from typing import Any

from celery import bootsteps

from celery_dlq.worker.admission.breaker import Breaker
from celery_dlq.worker.admission.copies import Copies
from celery_dlq.worker.admission.gate import Gate
from celery_dlq.worker.chord_headers import keep_chord_headers
from celery_dlq.worker.foreign.catch import Foreign
from celery_dlq.worker.foreign.redis_items import catch_unreadable
from celery_dlq.worker.green import GreenShutdown
from celery_dlq.worker.recording.recorder import Recorder
from celery_dlq.worker.recording.writer import Writer

#: Seconds after which the interpreter lets another thread run, in a parent whose tasks run elsewhere.
#: With Python's 0.005 the event loop waits that long for the writer after each of its socket calls;
#: in a storm of failures that costs throughput (``make bench`` shows how much).
SWITCH_INTERVAL_S = 0.001


class CaptureStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Runs in the worker's parent, once per connection to the broker."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        consumer.app.dead_letter_queue.check_store_url()
        # The app's modules are loaded by now, so what its rules and hooks name can be, too.
        consumer.app.dead_letter_queue.check_rules()
        consumer.app.dead_letter_queue.hooks.check()
        consumer.app.dead_letter_queue.meter  # noqa: B018 - a missing extra is said now
        # Before the pool's processes are made.
        keep_chord_headers(consumer.app)
        # Other steps look at the consumer's handlers when they start; so this is the time.
        Foreign(consumer, consumer.app.dead_letter_queue).join()
        self._green = GreenShutdown(consumer)
        self._green.join()
        # Next to the pool, so that what the others let go is still kept from one that must be alone.
        consumer.app.dead_letter_queue.deliveries.solitude.join(consumer)
        # Behind all others, so that what they let go is still kept back when its circuit is open.
        self._breaker: Breaker = consumer.app.dead_letter_queue.breaker
        self._breaker.join(consumer, consumer.app.tasks.values())
        # Behind the gate: what it holds and gives back need not be asked about.
        self._copies: Copies = consumer.app.dead_letter_queue.copies
        self._copies.join(consumer)
        self._gate: Gate = consumer.app.dead_letter_queue.gate
        self._gate.join(consumer)

    def start(self, consumer: Any) -> None:
        """The broker is connected."""
        writer, _ = self._parts(consumer)
        writer.start()
        catch_unreadable(consumer.task_consumer.channel)
        self._gate.start()
        self._breaker.start()
        self._green.start()
        if getattr(consumer.pool, "uses_semaphore", False):  # prefork: no task runs in this process
            _prefer_the_event_loop()
            writer.employ(consumer.app.dead_letter_queue.scribe)

    def register_with_event_loop(self, consumer: Any, hub: Any) -> None:
        """The event loop is about to run; after a lost connection it is a new one."""
        _, recorder = self._parts(consumer)
        recorder.join_loop(hub)

    def stop(self, consumer: Any) -> None:
        """The connection is lost, or the worker shuts down."""
        consumer.app.dead_letter_queue.deliveries.stop()
        self._copies.stop()
        self._green.stop()
        self._gate.stop()
        self._breaker.stop()
        _, recorder = self._parts(consumer)
        recorder.leave_loop()

    def info(self, consumer: Any) -> dict[str, Any]:
        """What ``celery inspect stats`` shows of us."""
        writer, _ = self._parts(consumer)
        return {
            "dlq": {
                "unwritten": writer.waiting,
                **self._gate.status(),
                **self._breaker.status(),
                "hooks": consumer.app.dead_letter_queue.hooks.status(),
            }
        }

    def _parts(self, consumer: Any) -> tuple[Writer, Recorder]:
        queue = consumer.app.dead_letter_queue
        return queue.writer, queue.recorder


def _prefer_the_event_loop() -> None:
    """Set the interpreter up for a process whose one busy thread is its event loop."""
    sys.setswitchinterval(min(SWITCH_INTERVAL_S, sys.getswitchinterval()))
    if not gc.get_freeze_count():
        # Letters that wait for their commit outlive the young generations, and each few hundred of them
        # would have the collector walk through all modules that the worker has ever loaded.
        gc.freeze()
