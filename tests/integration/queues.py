"""The queue of a test project. Its workers and the test itself must declare it in the same way."""

from __future__ import annotations

from typing import Any

from kombu import Exchange, Queue

#: The keys in which Celery's Redis transport keeps messages that are with a worker, by option.
_UNACKED = {"unacked_key": "", "unacked_index_key": "-index", "unacked_mutex_key": "-mutex"}


#: Transport options on a stand-in for Amazon SQS that is near: it is asked often, and what a worker gives
#: back comes back soon.
_SQS = {
    "region": "eu-west-1", "is_secure": False, "wait_time_seconds": 1, "polling_interval": 0.1,
    "visibility_timeout": 30,
}  # fmt: skip


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


def redis_options(queue: str) -> dict[str, Any]:
    """Transport options under which a queue's unacknowledged messages are its own, and so is the lock
    under which they are handed out again.

    Tests run side by side on one Redis. A worker with a short visibility timeout would hand out what the
    workers of other tests hold, and one that is killed while it looks keeps the lock for five minutes.
    """
    return {option: f"{queue}-unacked{end}" for option, end in _UNACKED.items()}


def transport_options(broker: str, queue: str) -> dict[str, Any]:
    """The options of a project's transport, for its workers and the test itself."""
    if broker.startswith("redis"):
        return redis_options(queue)
    return dict(_SQS) if broker.startswith("sqs") else {}
