"""How long the broker may hold a retry, and which broker it is."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from celery.utils.log import get_logger

from celery_dlq.addresses import broker_of, has_several

logger = get_logger(__name__)

#: Half of RabbitMQ's default ``consumer_timeout``. RabbitMQ closes a consumer that keeps a message for longer
#: than that timeout, and Celery's worker ends with it.
AMQP_HOLD_S = 900.0

#: Seconds after which a broker without a visibility timeout has given back the messages of a worker that was
#: killed, and another worker has begun them.
CONNECTION_LOST_S = 60.0


#: Seconds for which a worker may hold a message, without having accepted it, on a broker without a visibility
#: timeout: RabbitMQ's default ``consumer_timeout``.
UNACCEPTED_S = 2 * AMQP_HOLD_S

#: The user in an address.
_USER = re.compile(r"//[^/;]*@")


@dataclass(frozen=True)
class Hold:
    """Whether a retry waits in the broker or in the store."""

    #: Names the broker; the same for all workers that connect to it by the same addresses.
    place: str
    #: Seconds; a retry that has to wait longer is parked.
    at_most_s: float
    #: Seconds after which the broker has delivered the message of a killed worker again, if it still had it.
    given_back_after_s: float
    #: Seconds after which a message that was sent has vanished, if it has no outcome and its queue does not
    #: hold it.
    vanished_after_s: float


def upkeep_lease(place: str) -> str:
    """The name of the lease of the worker that does the upkeep for a broker: it releases parked retries, and
    looks for operations. One of the workers on that broker, if there are any, holds it."""
    return f"parked.{place}"


def hold_of(app: Any, park_after_s: float) -> Hold:
    """Where the retries of ``app`` wait. This needs no connection."""
    with app.connection_for_read() as connection:
        longest = safe_hold(connection)
        place = _place_of(connection)
        timeout = _visibility_timeout(connection)
    at_most_s = park_after_s if longest is None else min(park_after_s, longest)
    if timeout is None:
        # Other brokers notice at once that the connection is gone.
        return Hold(place, at_most_s, CONNECTION_LOST_S, UNACCEPTED_S)
    return Hold(place, at_most_s, 2 * timeout, 2 * timeout)


def safe_hold(connection: Any) -> float | None:
    """Seconds for which a worker may hold a message unacknowledged; None for no limit.

    It is half of the time after which the broker delivers the message to another worker, because its task
    still has to run after the wait.
    """
    if connection.transport.driver_type == "amqp":
        return AMQP_HOLD_S
    timeout = _visibility_timeout(connection)
    return None if timeout is None else timeout / 2


def _visibility_timeout(connection: Any) -> float | None:
    """Seconds after which the broker delivers an unacknowledged message again; None if it does not go by
    time."""
    channel = getattr(connection.transport, "Channel", None)
    candidates = (
        connection.transport_options.get("visibility_timeout"),
        getattr(channel, "visibility_timeout", None),  # Redis
        getattr(channel, "default_visibility_timeout", None),  # SQS
    )
    given = (item for item in candidates if isinstance(item, (int, float)) and item > 0)
    timeout = next(given, None)
    return None if timeout is None else float(timeout)


def _place_of(connection: Any) -> str:
    options = connection.transport_options
    if has_several(connection) or options.get("master_name"):
        # A failover changes none of this, and neither does a new user.
        broker: tuple[object, ...] = (_USER.sub("//", broker_of(connection)),)
    else:
        broker = (
            connection.transport_cls, connection.hostname, connection.port, connection.virtual_host,
        )  # fmt: skip
    parts = (*broker, options.get("global_keyprefix"), options.get("queue_name_prefix"))
    return hashlib.blake2b(repr(parts).encode(), digest_size=6).hexdigest()
