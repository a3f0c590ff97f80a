"""Whether the queues are there that letters are sent to."""

from __future__ import annotations

from typing import Any

from celery.utils.log import get_logger

logger = get_logger(__name__)


class Targets:
    """The queues of one redrive. The broker is asked once about each.

    :param elsewhere: a queue that letters are sent to which did not come from it.
    """

    def __init__(self, app: Any, *, elsewhere: str | None = None) -> None:
        self._app, self._elsewhere = app, elsewhere
        self._known: dict[str, str | None] = {}

    def why_not(self, queue: str) -> str | None:
        """The reason why nothing can be sent to ``queue``; None when it can, or nobody can say."""
        if not queue:
            return None  # it goes through its exchange, which returns what no queue takes
        if queue not in self._known:
            self._known[queue] = None if self._exists(queue) else _missing(queue)
        return self._known[queue]

    def _exists(self, queue: str) -> bool:
        try:
            with self._app.connection_for_write() as connection:
                if connection.transport.driver_type == "amqp" or self._is_new(queue):
                    connection.ensure_connection(max_retries=1, interval_start=0.2, timeout=5)
                    return _ask(connection, queue)
        except Exception as error:  # noqa: BLE001 - sending will meet it again, and say what it means
            logger.warning("queue %s could not be asked for: %r", queue, error)
        return True

    def _is_new(self, queue: str) -> bool:
        # Redis forgets a queue that is empty, so those that letters came from, or that the app
        # knows, are taken for being there.
        return queue == self._elsewhere and queue not in self._app.amqp.queues


def _ask(connection: Any, queue: str) -> bool:
    try:
        with connection.channel() as channel:
            channel.queue_declare(queue, passive=True)
    except connection.channel_errors as error:
        # What else a queue's declaration is refused for (it is another connection's, say), it exists.
        return str(getattr(error, "reply_code", "")) != "404"
    return True


def _missing(queue: str) -> str:
    return f"queue {queue} does not exist on the broker; start a worker that reads it first"
