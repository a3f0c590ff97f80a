"""How long the broker may hold a retry, which broker it is, and which promises do not hold on it."""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from celery_dlq.base.addresses import broker_of, has_several
from celery_dlq.errors import page

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
    #: Whether the broker may forget a message before it is acknowledged.
    forgets: bool = False
    #: Whether a worker can give a message back to its queue.
    takes_back: bool = True


def upkeep_lease(place: str) -> str:
    """The name of the lease of the worker that does the upkeep for a broker: it releases parked retries, and
    looks for operations. One of the workers on that broker, if there are any, holds it."""
    return f"parked.{place}"


def hold_of(app: Any, park_after_s: float) -> Hold:
    """Where the retries of ``app`` wait. This needs no connection."""
    with app.connection_for_read() as connection:
        longest = safe_hold(connection)
        place = _place_of(connection)
        timeout = visibility_timeout(connection)
        transport = transport_of(connection)
    at_most_s = park_after_s if longest is None else min(park_after_s, longest)
    if timeout is None:
        # Other brokers notice at once that the connection is gone.
        is_kafka, is_gone = transport == "kafka", transport in FORGETFUL
        lost_s = 0.0 if is_gone else CONNECTION_LOST_S
        return Hold(place, at_most_s, lost_s, UNACCEPTED_S, is_kafka or is_gone, not is_kafka)
    return Hold(place, at_most_s, 2 * timeout, 2 * timeout)


#: kombu's transports that delete a message when a worker receives it.
FORGETFUL = frozenset(
    {"filesystem", "sql", "mongodb", "zookeeper", "consul", "etcd", "azurestoragequeues"}
)

_FORGETS = (
    "the broker forgets a message when a worker receives it, also with acks_late: if the worker is killed, "
    "the messages that it ran become letters, and those that it had fetched are lost"
)

_KAFKA = (
    "an acknowledgement covers all messages that the worker has received before, so if the worker is "
    "killed, the messages that it ran become letters, and those that it had fetched may be lost; a task that "
    "kills its process, or gives its message back, becomes a letter at once; the broker does not confirm "
    "what a redrive sends"
)

NOT_RUN = "celery_dlq has not been run on it"

#: The promises that do not hold on a transport; empty if all hold.
NOT_COVERED: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("amqp", "redis", "sqs", "pgmq", "memory"), ""),
        **dict.fromkeys(("filesystem", "sql"), _FORGETS),
        "kafka": _KAFKA,
    }
)


def driver_of(app: Any) -> str:
    """The driver of the app's broker, such as ``redis`` or ``amqp``."""
    try:
        with app.connection_for_write() as connection:
            return transport_of(connection)
    except ModuleNotFoundError:  # the client is missing
        return scheme_of(app)


def scheme_of(app: Any) -> str:
    """The scheme of the first address of the app's broker, by which kombu finds its transport."""
    urls = app.conf.broker_write_url or ""
    return urlsplit(urls if isinstance(urls, str) else next(iter(urls), "")).scheme


def transport_of(connection: Any) -> str:
    """The driver of a connection's transport, such as ``redis``; its name if kombu names no driver."""
    driver = str(connection.transport.driver_type)
    return str(connection.transport_cls) if driver == "N/A" else driver


def not_covered(app: Any) -> str:
    """The promises that do not hold on the broker of ``app``, with the next step; empty if all hold. This
    needs no connection."""
    transport = driver_of(app)
    why = NOT_COVERED.get(transport, NOT_RUN)
    if not why:
        return ""
    return f"on the transport {transport}, not everything is covered: {why}; see {page('brokers')}"


def options_read(connection: Any) -> set[str]:
    """The names that kombu reads in ``broker_transport_options`` on the transport of ``connection``: every
    word in quotes in its modules, because kombu has no list of them, and the parameters of its client's
    connection, which RabbitMQ's transport passes on."""
    transport = connection.transport
    client = getattr(transport, "Connection", type(transport))
    kinds = (*type(transport).__mro__[:-1], *type(connection).__mro__[:-1])
    sources = map(inspect.getsource, {sys.modules[kind.__module__] for kind in kinds})
    quoted = re.findall(r"""['"]([a-z][\w-]*)['"]""", "".join(sources))
    return {*quoted, *inspect.signature(client).parameters}


def safe_hold(connection: Any) -> float | None:
    """Seconds for which a worker may hold a message unacknowledged; None for no limit.

    It is half of the time after which the broker delivers the message to another worker, because its task
    still has to run after the wait.
    """
    if connection.transport.driver_type == "amqp":
        return AMQP_HOLD_S
    timeout = visibility_timeout(connection)
    return None if timeout is None else timeout / 2


def visibility_timeout(connection: Any) -> float | None:
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
    parts = (
        *broker, options.get("global_keyprefix"), options.get("queue_name_prefix"),
        # On SQS, which has no host of its own.
        *([options["region"]] if "region" in options else []),
    )  # fmt: skip
    return hashlib.blake2b(repr(parts).encode(), digest_size=6).hexdigest()
