"""For how long the broker may hold a retry, and which broker it is."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from celery.utils.log import get_logger

logger = get_logger(__name__)

#: Half of RabbitMQ's ``consumer_timeout`` by default: a consumer that keeps a message for longer than
#: that is closed, and Celery's worker with it.
AMQP_HOLD_S = 900.0


@dataclass(frozen=True)
class Hold:
    """What bears on where a retry waits."""

    #: Names the broker; the same for all workers that are on it by the same address.
    place: str
    #: Seconds; a retry that has to wait longer is parked.
    at_most_s: float


def hold_of(app: Any, park_after_s: float) -> Hold:
    """Where the retries of ``app`` wait. Nothing is connected to find out."""
    with app.connection_for_read() as connection:
        longest = safe_hold(connection)
        place = _place_of(connection)
    return Hold(place, park_after_s if longest is None else min(park_after_s, longest))


def safe_hold(connection: Any) -> float | None:
    """Seconds for which a worker may hold a message unacknowledged; None where nothing bounds it.

    Half of the time after which the broker gives it to somebody else: what waited still has to run.
    """
    transport = connection.transport
    if transport.driver_type == "amqp":
        return AMQP_HOLD_S
    channel = getattr(transport, "Channel", None)
    candidates = (
        connection.transport_options.get("visibility_timeout"),
        getattr(channel, "visibility_timeout", None),  # Redis
        getattr(channel, "default_visibility_timeout", None),  # SQS
    )
    given = (item for item in candidates if isinstance(item, (int, float)) and item > 0)
    timeout = next(given, None)
    return None if timeout is None else float(timeout) / 2


def _place_of(connection: Any) -> str:
    options = connection.transport_options
    parts = (
        connection.transport_cls, connection.hostname, connection.port, connection.virtual_host,
        options.get("global_keyprefix"), options.get("queue_name_prefix"),
    )  # fmt: skip
    return hashlib.blake2b(repr(parts).encode(), digest_size=6).hexdigest()
