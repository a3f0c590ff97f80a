"""What a check of the doctor says, and what several checks need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

#: Tasks that one finding names.
_NAMED = 5

#: Seconds for which a broker leaves a held message alone, unless told otherwise: kombu's Redis and
#: SQS transports (``visibility_timeout``), and RabbitMQ (``consumer_timeout``).
_REDIS_HIDDEN, _SQS_HIDDEN, _RABBITMQ_HELD = 3_600, 1_800, 1_800


class Level(str, Enum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """What a check found: one line, with the next step where there is one."""

    check: str
    level: Level
    text: str


Findings = Iterator[Finding]


def dlq_tasks(app: Any) -> list[Any]:
    """The app's tasks on DLQTask, by name."""
    from celery_dlq.worker.task import DLQTask

    # With DLQTask as the app's task_cls, Celery's own tasks are of it too, and never judged.
    own = [app.tasks[name] for name in sorted(app.tasks) if not name.startswith("celery.")]
    return [task for task in own if isinstance(task, DLQTask)]


def named(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    listed = sorted(names)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more


def driver_of(app: Any) -> str:
    """The kind of the app's broker, such as ``redis`` or ``amqp``."""
    with app.connection_for_write() as connection:
        return str(connection.transport.driver_type)


def hold_limit(app: Any) -> tuple[float, str] | None:
    """How long the broker lets a worker hold a message, in seconds, and what sets that."""
    driver = driver_of(app)
    options = app.conf.broker_transport_options or {}
    defaults = {"redis": _REDIS_HIDDEN, "sqs": _SQS_HIDDEN}
    if driver in defaults:
        return float(options.get("visibility_timeout", defaults[driver])), "visibility_timeout"
    if driver == "amqp":
        return float(_RABBITMQ_HELD), "RabbitMQ's consumer_timeout, if it has its default"
    return None
