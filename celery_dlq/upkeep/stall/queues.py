"""The depths of a worker's queues, on a connection that the consumer does not use."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from kombu.exceptions import OperationalError

from celery_dlq.errors import BrokerError
from celery_dlq.redrive.queues import messages_in

#: Seconds in which the broker must accept a connection, and answer each question.
ANSWER_S = 5.0

#: The names of these limits, by the driver of the transport. Without them, the watch could hang on a dead
#: connection like the consumer.
_LIMITS = {
    "redis": {"socket_connect_timeout": ANSWER_S, "socket_timeout": ANSWER_S},
    "amqp": {"read_timeout": ANSWER_S, "write_timeout": ANSWER_S},
}


class Queues:
    """Asks the broker of ``app`` how many messages wait. The connection is kept for the next question."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._connection: Any = None
        self._channel: Any = None

    def waiting(self, names: Sequence[str]) -> Mapping[str, int]:
        """Those of the queues in which messages wait, with their number. Messages that a worker holds do not
        count.

        :raises BrokerError: the broker does not answer.
        """
        try:
            return self._ask(names)
        except Exception as error:
            errors = self._errors()
            self.close()
            if not isinstance(error, errors):
                raise
            raise BrokerError(
                f"The broker does not say how many messages wait ({type(error).__name__}: {error}); "
                "check it with: celery -A <app> dlq doctor"
            ) from error

    def close(self) -> None:
        """Close the connection. The next question opens another one."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):  # it may be broken
                connection.close()

    def _ask(self, names: Sequence[str]) -> Mapping[str, int]:
        counts = {name: self._count(name) for name in names}
        return {name: count for name, count in counts.items() if count}

    def _count(self, name: str) -> int:
        channel = self._open_channel()
        return messages_in(channel, name, self._connection.channel_errors) or 0

    def _open_channel(self) -> Any:
        if self._connection is None:
            self._connection = self._connect()
        # RabbitMQ has closed it if the last queue does not exist.
        if self._channel is None or not getattr(self._channel, "is_open", True):
            self._channel = self._connection.channel()
        return self._channel

    def _connect(self) -> Any:
        connection = self._app.connection_for_read(connect_timeout=ANSWER_S)
        limits = _LIMITS.get(connection.transport.driver_type, {})
        connection.transport_options = {**(connection.transport_options or {}), **limits}
        return connection.ensure_connection(max_retries=1, interval_start=0, timeout=ANSWER_S)

    def _errors(self) -> tuple[type[Exception], ...]:
        if self._connection is None:
            return (OperationalError, OSError)
        return (
            OperationalError, OSError, *self._connection.connection_errors, *self._connection.channel_errors,
        )  # fmt: skip
