"""The queue of a test project, as its workers and the test itself must declare it alike."""

from __future__ import annotations

from typing import Any

from kombu import Exchange, Queue


def queue_settings(name: str, kind: str) -> dict[str, Any]:
    """Celery's settings for one queue: ``classic`` (also for Redis) or ``quorum``.

    A quorum queue hangs on a topic exchange, as Celery's delayed delivery in the broker needs it.
    """
    if kind != "quorum":
        return {"task_default_queue": name}
    exchange = Exchange(name, type="topic")
    queue = Queue(name, exchange, routing_key=name, queue_arguments={"x-queue-type": "quorum"})
    return {
        "task_default_queue": name,
        "task_default_exchange": name,
        "task_default_exchange_type": "topic",
        "task_default_routing_key": name,
        "task_queues": [queue],
    }
