"""What the apps of the public projects have in common. It runs in the environment of a project, which has the
standard library, the project and this package."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Stands in an argument or a header of at least one message of each project; no screen may show it.
SECRET = "s3cr3t-0f-a-publ1c-pr0j3ct"

#: The broker that most of the projects have, and the one of the others.
REDIS = os.environ.get("CELERY_DLQ_TEST_REDIS", "redis://localhost:6379")
RABBITMQ = os.environ.get("CELERY_DLQ_TEST_RABBITMQ", "amqp://guest:guest@localhost:5672//")

#: The queue of this run.
QUEUE = os.environ.get("PUBLIC_PROJECTS_QUEUE", "public-projects")

#: The address of the service that is out of order until the cause is removed.
SERVICE = os.environ.get("PUBLIC_PROJECTS_SERVICE", "")


@dataclass(frozen=True)
class Case:
    """One of a project's tasks, with arguments with which it fails, and the letter that it should become."""

    task: str
    #: The last part of the exception's dotted name.
    exception: str
    verdict: str
    reason: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    #: Options of ``apply_async()``.
    options: Mapping[str, Any] = field(default_factory=dict)


def set_up(app: Any, broker: str = REDIS) -> None:
    """Give the app of a project its broker, with a queue of its own, and retries that do not wait long."""
    app.conf.update(
        broker_url=broker,
        task_default_queue=QUEUE,
        broker_connection_retry_on_startup=True,
        dlq_max_attempts=3,
        dlq_retry_base=0.2,
        dlq_stall_after=0,
    )
    if broker == REDIS:
        app.conf.broker_transport_options = {
            **app.conf.broker_transport_options,
            "unacked_key": f"{QUEUE}-unacked",
            "unacked_index_key": f"{QUEUE}-unacked-index",
            "unacked_mutex_key": f"{QUEUE}-unacked-mutex",
        }
