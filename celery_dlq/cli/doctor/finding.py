"""Findings of the doctor, and helpers that several checks share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

#: Seconds to wait for the broker.
BROKER_TIMEOUT_S = 3

#: Tasks that a finding lists.
_NAMED = 5

#: Default seconds for which a worker may hold a message before the broker delivers it again: kombu's Redis
#: and SQS transports (``visibility_timeout``), and RabbitMQ (``consumer_timeout``).
_REDIS_HIDDEN, _SQS_HIDDEN, _RABBITMQ_HELD = 3_600, 1_800, 1_800


class Level(str, Enum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """The result of a check: one line, with the next step if there is one."""

    level: Level
    text: str


Findings = Iterator[Finding]


def why_not_writable(directory: Path) -> str:
    """Why no file could be made in ``directory``, or it could not be made itself; empty if it could."""
    nearest = next(path for path in (directory, *directory.parents) if path.exists())
    try:
        # Permissions alone do not reveal a file system that is read-only, full, or not made for files.
        Path(tempfile.mkdtemp(prefix=".celery_dlq-", dir=nearest)).rmdir()
    except OSError as error:
        return f"{nearest} is not writable ({error.strerror})"
    return ""


def password_shown(setting: str, variable: str) -> Finding:
    """The finding about a URL with a password in the configuration. Celery hides settings by words in their
    names, and the URLs of the broker and the result backend.

    :param variable: the variable of the environment that takes the URL instead.
    """
    return Finding(
        Level.WARNING,
        f"celery report, celery inspect conf and Flower's worker page show the password in {setting}; set "
        f"the URL in the environment variable {variable} instead",
    )


def named(names: Iterable[str]) -> str:
    """The first few names, and the number of the others."""
    listed = sorted(names)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more


def driver_of(app: Any) -> str:
    """The driver of the app's broker, such as ``redis`` or ``amqp``."""
    with app.connection_for_write() as connection:
        return str(connection.transport.driver_type)


def hold_limit(app: Any) -> tuple[float, str] | None:
    """How long the broker lets a worker hold a message, in seconds, and the setting that limits it."""
    driver = driver_of(app)
    options = app.conf.broker_transport_options or {}
    defaults = {"redis": _REDIS_HIDDEN, "sqs": _SQS_HIDDEN}
    if driver in defaults:
        return float(options.get("visibility_timeout", defaults[driver])), "visibility_timeout"
    if driver == "amqp":
        return float(_RABBITMQ_HELD), "the default of RabbitMQ's consumer_timeout"
    return None
