"""The consumer's bootstep: starts the writer with the worker and ties it to the event loop."""

from __future__ import annotations

import sys
from typing import Any

from celery import bootsteps

from celery_dlq.worker.foreign import Foreign
from celery_dlq.worker.gate import Gate
from celery_dlq.worker.recorder import Recorder
from celery_dlq.worker.redis_items import catch_unreadable
from celery_dlq.worker.writer import Writer

#: Seconds after which the interpreter lets another thread run, in a parent whose tasks run elsewhere.
#: With Python's 0.005 the event loop waits that long for the writer after each of its socket calls;
#: in a storm of failures that costs throughput (``make bench`` shows how much).
SWITCH_INTERVAL_S = 0.001


class CaptureStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Runs in the worker's parent, once per connection to the broker."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        # Other steps look at the consumer's handlers when they start; so this is the time.
        Foreign(consumer, consumer.app.dead_letter_queue).join()
        # Next to the pool, so that what the gate lets go is still kept from one that must be alone.
        consumer.app.dead_letter_queue.deliveries.solitude.join(consumer)
        self._gate: Gate = consumer.app.dead_letter_queue.gate
        self._gate.join(consumer)

    def start(self, consumer: Any) -> None:
        """The broker is connected."""
        writer, _ = self._parts(consumer)
        writer.start()
        catch_unreadable(consumer.task_consumer.channel)
        self._gate.start()
        if getattr(consumer.pool, "uses_semaphore", False):  # prefork: no task runs in this process
            sys.setswitchinterval(min(SWITCH_INTERVAL_S, sys.getswitchinterval()))

    def register_with_event_loop(self, consumer: Any, hub: Any) -> None:
        """The event loop is about to run; after a lost connection it is a new one."""
        _, recorder = self._parts(consumer)
        recorder.join_loop(hub)

    def stop(self, consumer: Any) -> None:
        """The connection is lost, or the worker shuts down."""
        consumer.app.dead_letter_queue.deliveries.stop()
        self._gate.stop()
        _, recorder = self._parts(consumer)
        recorder.leave_loop()

    def info(self, consumer: Any) -> dict[str, Any]:
        """What ``celery inspect stats`` shows of us."""
        writer, _ = self._parts(consumer)
        return {"dlq": {"unwritten": writer.waiting, **self._gate.status()}}

    def _parts(self, consumer: Any) -> tuple[Writer, Recorder]:
        queue = consumer.app.dead_letter_queue
        return queue.writer, queue.recorder
