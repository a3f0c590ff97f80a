"""Notices that a worker receives nothing although messages wait in the broker and it has free slots, or that
it keeps a message that could run.

The consumer's counters enter (:class:`~celery_dlq.worker.reception.Reception`), and the depths of its queues,
on a connection of the watch's own. A log line and an event for hooks leave. The watch runs in a thread of its
own, so it also notices an event loop that hangs.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from celery.utils.log import get_logger
from kombu.exceptions import OperationalError

from celery_dlq.base.addresses import reach
from celery_dlq.errors import BrokerError, page
from celery_dlq.model.worker import Stall
from celery_dlq.redrive.broker.queues import broker_errors, messages_in
from celery_dlq.upkeep.periodic import Periodic
from celery_dlq.worker.admission.isolation import HOLD_S
from celery_dlq.worker.reception import Reception

logger: logging.Logger = get_logger(__name__)

#: The most and the fewest seconds between two looks.
LOOK_S, SOON_S = 4.0, 0.25
#: The same, in place of LOOK_S, where each look is paid for, and nothing has been seen to wait.
PAID_LOOK_S = 60.0
#: The fewest looks that must see waiting messages before the worker counts as stalled: other workers may
#: empty the queue between two looks.
LOOKS = 4
#: If this many seconds pass between two looks, this process or its machine was stopped, and the consumer has
#: slept, too.
GAP_S = 15.0

#: Seconds for which a message may be held on purpose. If it still does not run ``dlq_stall_after`` later, its
#: worker is stalled.
KEPT_S = HOLD_S


@dataclass(frozen=True)
class Recovered:
    """A stalled worker has received a message."""

    #: Seconds since it was noticed that it was stalled.
    after_s: float


@dataclass(frozen=True)
class _Suspicion:
    """Looks one after the other that saw waiting messages, while none was received. Times are monotonic."""

    since: float
    last: float
    looks: int = 1


class StallWatch:
    """The watch over one worker.

    :param worker: its name.
    :param waiting: the queues among these names in which messages wait, with their numbers; asks the broker.
    :param stall_after_s: seconds without a message, while messages wait, after which the worker is stalled.
    :param pays: whether each look is paid for.
    """

    def __init__(
        self,
        worker: str,
        reception: Reception,
        waiting: Callable[[Sequence[str]], Mapping[str, int]],
        *,
        stall_after_s: float,
        pays: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._worker, self._reception, self._waiting = worker, reception, waiting
        self._stall_after_s = stall_after_s
        self._monotonic, self._now = monotonic, now
        self._look_s = min(LOOK_S, max(SOON_S, stall_after_s / LOOKS))
        self._rest_s = min(PAID_LOOK_S, stall_after_s) if pays else self._look_s
        self._received = reception.received
        self._suspicion: _Suspicion | None = None
        #: Since when each message is kept, and when that was last looked at.
        self._kept: dict[str, float] = {}
        self._looked_at = monotonic()

    @property
    def wait_s(self) -> float:
        """Seconds until the next look."""
        if self._reception.stall is not None:
            return self._look_s
        if self._suspicion is None:
            return self._rest_s
        left_s = self._suspicion.since + self._stall_after_s - self._monotonic()
        return max(SOON_S, min(self._look_s, left_s))

    def look(self) -> Stall | Recovered | None:
        """Look once. Returns a change: the worker is stalled now, or receives again; None without a change.

        :raises BrokerError: the broker does not answer. The stall, if any, continues; a suspicion is dropped.
        """
        has_received, stall = self._has_received(), self._reception.stall
        kept = self._kept_for_long()
        if kept and stall is None:
            return self._begin_stall(KEPT_S + self._stall_after_s, (), kept)
        if not kept and (has_received or (stall is not None and not stall.queues)):
            return self._end_stall()
        if stall is not None:
            return None  # until it receives a message, whether or not others have emptied the queue
        suspicion, self._suspicion = self._suspicion, None
        waiting = self._seen_waiting()
        if not waiting:
            return None
        self._suspicion = found = self._strengthened(suspicion)
        lasted_s = found.last - found.since
        if lasted_s < self._stall_after_s or found.looks < LOOKS:
            return None
        return self._begin_stall(lasted_s, tuple(sorted(waiting)), sum(waiting.values()))

    def _kept_for_long(self) -> int:
        """How many messages the worker keeps."""
        now, last, self._looked_at = self._monotonic(), self._looked_at, self._monotonic()
        before = self._kept if now - last < self._rest_s + GAP_S else {}
        self._kept = {one: before.get(one, now) for one in self._reception.kept()}
        most_s = KEPT_S + self._stall_after_s
        return sum(now - since >= most_s for since in self._kept.values())

    def _has_received(self) -> bool:
        received = self._reception.received
        if received == self._received:
            return False
        self._received, self._suspicion = received, None
        return True

    def _seen_waiting(self) -> Mapping[str, int]:
        """The queues in which messages wait that the worker could receive, and has not received until now."""
        if not self._reception.could_receive():
            return {}
        queues = self._reception.queues()
        waiting = self._waiting(queues) if queues else {}
        # Both may have changed while the broker was asked.
        return {} if self._has_received() or not self._reception.could_receive() else waiting

    def _strengthened(self, suspicion: _Suspicion | None) -> _Suspicion:
        now = self._monotonic()
        if suspicion is None or now - suspicion.last > GAP_S:
            return _Suspicion(now, now)
        return replace(suspicion, last=now, looks=suspicion.looks + 1)

    def _begin_stall(self, lasted_s: float, queues: tuple[str, ...], messages: int) -> Stall:
        now = self._now()
        stall = Stall(
            worker=self._worker,
            since=now - timedelta(seconds=lasted_s),
            noticed_at=now,
            queues=queues,
            messages=messages,
        )
        self._reception.stall = stall
        return stall

    def _end_stall(self) -> Recovered | None:
        stall, self._reception.stall = self._reception.stall, None
        if stall is None:
            return None
        return Recovered((self._now() - stall.noticed_at).total_seconds())


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
        """Queues with waiting messages, and their counts. Messages that a worker holds do not count.

        :raises BrokerError: the broker does not answer.
        """
        try:
            counts = {name: self._count(name) for name in names}
            return {name: count for name, count in counts.items() if count}
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
        return reach(connection, ANSWER_S)

    def _errors(self) -> tuple[type[Exception], ...]:
        if self._connection is None:
            return (OperationalError, OSError)
        return (OperationalError, OSError, *broker_errors(self._connection))


class StallThread(Periodic):
    """Notices that ``worker`` receives nothing although messages wait and it has free slots.

    :param worker: a worker whose consumer was made. It may not have started.
    """

    does = "stall watch"
    text_stopped = "a stall of this worker would not be noticed"
    text_resumed = "a stall of this worker would be noticed again"

    def __init__(self, dlq: Any, worker: Any) -> None:
        super().__init__(dlq)
        self._queues = Queues(dlq.app)
        with dlq.app.connection_for_read() as connection:
            is_paid_for = connection.transport.driver_type == "sqs"
        self._watch = StallWatch(
            str(worker.hostname),
            worker.consumer.dlq.reception,
            self._queues.waiting,
            stall_after_s=dlq.settings.stall_after,
            pays=is_paid_for,
        )

    def pause_s(self) -> float:
        """Seconds until the next look."""
        return self._watch.wait_s

    def end(self) -> None:
        """Close the connection of the watch."""
        self._queues.close()

    def round(self) -> None:
        """Look, and announce what has changed."""
        seen = self._watch.look()
        if isinstance(seen, Stall):
            logger.error(
                "this worker is stalled: it %s; restart it: %s", seen.what, page("stalled-workers")
            )
            self._dlq.announcer().stalled(seen)
        elif isinstance(seen, Recovered):
            logger.info(
                "this worker receives messages again, after a stall of %.0f s", seen.after_s
            )
        self.log_once("")
