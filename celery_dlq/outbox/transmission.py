"""One try to hand a message to the broker, within bounded time, with the answer whether the broker has taken
it; and the memory that the broker is away."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from amqp.exceptions import MessageNacked
from kombu.connection import PooledConnection
from kombu.exceptions import OperationalError

from celery_dlq.classify import decide
from celery_dlq.model.states import Verdict
from celery_dlq.redrive.broker.queues import broker_errors

logger: logging.Logger = logging.getLogger(__name__)

#: kombu's options that limit how long an answer of the broker is awaited, by its driver.
_LIMITS = {
    "amqp": ("connect_timeout", "read_timeout", "write_timeout"),
    "redis": ("socket_timeout", "socket_connect_timeout"),
}

#: The part of Celery's ``task_publish_retry_policy`` that kombu's ``ensure_connection()`` takes.
_POLICY = ("max_retries", "interval_start", "interval_step", "interval_max")

#: Seconds between two tries while the broker is away; and how many times as long as a try the pause after it
#: is at least, so that few messages wait for a broker that hangs.
PAUSE_S, PAUSES = 2.0, 5.0

#: The state of a TCP connection that neither side has closed (``tcp_states.h`` of Linux).
_ESTABLISHED = 1


@dataclass(frozen=True)
class Unsent:
    """A message that the broker has not confirmed."""

    error: Exception
    #: Whether the broker may have taken it.
    in_doubt: bool = False
    #: Whether the broker could not be reached, or did not answer.
    is_away: bool = False


def transmit(
    producer: Any, body: Any, options: Mapping[str, Any], *, within_s: float, retries: bool
) -> Unsent | None:
    """Publish ``body`` by ``producer``; returns None once the broker has taken it.

    A message is written once: if it is unknown whether the broker has taken it, another try might double it.

    :param options: those of kombu's ``publish()``.
    :param within_s: seconds for the connection, and for the broker's answer.
    :param retries: whether the connection is tried again, by Celery's ``task_publish_retry_policy``.
    :raises Exception: the message cannot be published, for a reason that is not the broker's.
    """
    connection = producer.connection
    bound(producer, connection, within_s)
    try:
        _connect(producer, connection, within_s, options if retries else {})
    except (OperationalError, OSError, *broker_errors(connection)) as error:
        return Unsent(error, is_away=will_pass(error))
    try:
        channel = producer.channel
        if hasattr(channel, "basic_publish_confirm"):
            # Without confirms, RabbitMQ's client takes a message that was written for one that was sent.
            channel.basic_publish = channel.basic_publish_confirm
        producer.publish(body, **{**options, "retry": False, "confirm_timeout": within_s})
    except (OperationalError, OSError, MessageNacked, *broker_errors(connection)) as error:
        # An answer that comes later must not be taken for that of another message.
        _give_up(producer, connection)
        return Unsent(
            error,
            in_doubt=not (_never_reached(error) or _is_refusal(connection, error)),
            # RabbitMQ accepts connections, but no message, while its memory or its disk is full.
            is_away=type(error).__name__ == "TimeoutError",
        )
    return None


def will_pass(error: Exception) -> bool:
    """Whether the message can be sent later, without a change of the message or of the settings."""
    # In some networks, the name of a service that is away is unknown.
    return isinstance(error, socket.gaierror) or decide(error).verdict is not Verdict.TERMINAL


def bound(producer: Any, connection: Any, within_s: float) -> None:
    """Let each answer of the broker be awaited for at most ``within_s`` seconds, over all its addresses."""
    if getattr(connection, "_dlq_bound", None) == within_s:
        return
    connection._dlq_bound = within_s
    each_s = within_s / max(1, len(connection.alt))
    options = dict(connection.transport_options)
    for name in _LIMITS.get(connection.transport.driver_type, ()):
        given_s = options.get(name) or getattr(connection, name, None) or each_s
        options[name] = min(given_s, each_s)
    connection.transport_options = options
    if connection.connected and isinstance(connection, PooledConnection):
        # It was opened for another message, without these limits.
        _give_up(producer, connection)


def _connect(producer: Any, connection: Any, within_s: float, options: Mapping[str, Any]) -> None:
    if connection.connected:
        sock = getattr(connection.connection, "sock", None)
        if sock is None or not _is_closed(sock):
            return
        _give_up(producer, connection)
    # Without the policy, each address is tried once.
    policy = {"max_retries": max(1, len(connection.alt)) - 1, **_policy_of(options)}
    connection.ensure_connection(timeout=within_s, reraise_as_library_errors=False, **policy)


def _give_up(producer: Any, connection: Any) -> None:
    connection.collect()
    producer.revive(connection)


def _policy_of(options: Mapping[str, Any]) -> Mapping[str, Any]:
    given = options.get("retry_policy") or {} if options.get("retry") else {}
    return {name: given[name] for name in _POLICY if name in given}


def _is_closed(sock: Any) -> bool:
    """Whether the other side has closed an idle connection: RabbitMQ does so with one that sends no
    heartbeats. A message that is written to it vanishes."""
    try:
        return bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED)
    except (AttributeError, OSError):  # not a TCP connection
        return False


def _never_reached(error: Exception) -> bool:
    """Whether the message was not written, because Redis' client, which connects again by itself, could
    not."""
    causes = error, error.__cause__, error.__context__
    return any(isinstance(cause, (ConnectionRefusedError, socket.gaierror)) for cause in causes)


def _is_refusal(connection: Any, error: Exception) -> bool:
    """Whether the broker has answered that it does not take the message. A broker that fails while it keeps a
    message says so, too, although it may have kept it."""
    return isinstance(error, connection.channel_errors) and not isinstance(error, MessageNacked)


class BrokerCircuit:
    """Remembers that the broker cannot be reached, so that only one message every few seconds waits for it.
    Threads use it without a lock: two tries at a time do no harm."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._error: Exception | None = None
        self._try_at = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the last try has not reached the broker."""
        return self._error is not None

    def why_not_now(self) -> Exception | None:
        """Why this message is not tried; None if it is."""
        if self._error is not None and self._monotonic() >= self._try_at:
            self._try_at = self._monotonic() + PAUSE_S
            return None
        # Each raise adds to the traceback, which keeps the messages of its frames in memory.
        return self._error and self._error.with_traceback(None)

    def note(self, unsent: Unsent | None, took_s: float) -> None:
        """Note the result of a try, which took ``took_s`` seconds."""
        was_open = self.is_open
        self._error = unsent.error if unsent is not None and unsent.is_away else None
        self._try_at = self._monotonic() + max(PAUSE_S, PAUSES * took_s)
        if self._error is not None and not was_open:
            logger.warning("the broker cannot be reached, so messages are kept: %r", self._error)
        elif self._error is None and was_open:
            logger.info("the broker can be reached again")
