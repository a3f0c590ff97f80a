"""What a consumer has received from the broker, and whether it could take more.

The watch for stalls (``celery_dlq.upkeep.stall``) reads this in a thread of its own, because the consumer's
event loop may hang.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

from celery.bootsteps import CLOSE, TERMINATE
from celery.utils.quorum_queues import detect_quorum_queues
from celery.worker import state

from celery_dlq.model.worker import Stall
from celery_dlq.worker.celery_quirks.pools import is_green

#: The states of a consumer that stops for good.
_ENDING = (CLOSE, TERMINATE)


class Reception:
    """The messages of one consumer, from the broker's delivery to their acknowledgement."""

    def __init__(self) -> None:
        #: Messages received since the worker has started, whatever they are.
        self.received = 0
        #: The present stall, which the watch for stalls sets; None if the worker is not stalled.
        self.stall: Stall | None = None
        #: The messages of the present connection. They live for as long as they can be acknowledged.
        self._messages: set[ref[Any]] = set()
        self._consumer: Any = None
        self._has_begun = False

    def join(self, consumer: Any) -> None:
        """Notice the messages of ``consumer``. Called before it starts."""
        make = consumer.create_task_handler
        self._consumer = consumer

        def create_task_handler(*args: Any, **kwargs: Any) -> Callable[[Any], object]:
            return self._noticing(make(*args, **kwargs))

        consumer.create_task_handler = create_task_handler

    def queues(self) -> list[str]:
        """The queues that the consumer should receive messages from, also while it is not connected."""
        chosen = self._consumer.app.amqp.queues.consume_from.values()
        # A broker that delivers to one consumer at a time may rightly give nothing to this one.
        single = "x-single-active-consumer"
        return [
            one.name
            for one in chosen
            if not (getattr(one, "queue_arguments", None) or {}).get(single)
        ]

    def could_receive(self) -> bool:
        """Whether the broker may deliver more messages to the consumer, and one of them could run now. False
        before the consumer has begun, and when its worker is about to end."""
        consumer = self._consumer
        if not self._has_begun or self._is_ending():
            return False
        # A request that waits for a slot, or is held back on purpose, takes one, too. After a lost
        # connection, Celery 5.5 knows a request that still runs only as an active one.
        taken = max(len(state.reserved_requests), len(state.active_requests))
        if taken >= _slots(consumer.pool):
            return False
        # Fewer messages must be unacknowledged than the prefetch limit allows. It is raised for each
        # message that waits for its time (``eta``), or that is held.
        limit = self._prefetch_limit()
        return consumer.connection is None or not limit or self._unacknowledged() < limit

    def kept(self) -> set[str]:
        """The ids of the messages that do not run, although the pool has free slots and no message must be
        alone."""
        # One step for the interpreter, so that no request is added or removed until then.
        requests = [one for one in list(state.requests.values()) if one in state.reserved_requests]
        waiting = {one.id for one in requests if not _has_begun(one)}
        is_free = len(requests) - len(waiting) < _slots(self._consumer.pool)
        return waiting if is_free and not self._consumer.dlq.isolation.is_on else set()

    def _noticing(self, handle: Callable[[Any], object]) -> Callable[[Any], object]:
        """``handle``, which gets each message of a new connection. Messages of the last connection no longer
        count: the broker delivers them again."""
        # Not a WeakSet: its add() and its forgetting are Python code, which each message would run.
        messages = self._messages = set[ref[Any]]()
        note, forget = messages.add, messages.discard
        self._has_begun = True

        def on_message(message: Any) -> object:
            self.received += 1
            note(ref(message, forget))
            return handle(message)

        return on_message

    def _is_ending(self) -> bool:
        # The value is the exit status, which may be 0.
        asked = (state.should_stop, state.should_terminate)
        is_asked = any(status is not None and status is not False for status in asked)
        return is_asked or self._consumer.blueprint.state in _ENDING

    def _unacknowledged(self) -> int:
        try:
            messages = tuple(self._messages)
        except RuntimeError:  # a message has just arrived; the counter shows it, too
            return 0
        found = [one() for one in messages]
        return sum(message is not None and not message.acknowledged for message in found)

    def _prefetch_limit(self) -> int:
        """0 for no limit."""
        consumer = self._consumer
        limit: int = 0 if consumer.qos is None else consumer.qos.value
        if limit and _is_static(consumer):
            return min(limit, int(consumer.initial_prefetch_count))
        return limit


def _slots(pool: Any) -> int:
    # Before 5.7, gevent's pool says how many greenlets run.
    slots: int = pool.limit if is_green(pool) else pool.num_processes
    return slots or 0


def _is_static(consumer: Any) -> bool:
    """Whether a changed prefetch limit has no effect on the broker: RabbitMQ reads it only when a consumer of
    a quorum queue begins, and Celery sets it for each queue then."""
    app, connection = consumer.app, consumer.connection
    if not app.conf.worker_detect_quorum_queues or connection is None:
        return False
    return bool(detect_quorum_queues(app, connection.transport.driver_type)[0])


def _has_begun(request: Any) -> bool:
    """Whether the pool has got ``request``."""
    given = getattr(request, "_apply_result", None)
    return given is not None or request in state.active_requests
