"""Decides whether a worker is stalled. It reads counters and the depths of queues, and does nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from celery_dlq.model.stall import Stall

#: The most and the fewest seconds between two looks.
LOOK_S, SOON_S = 4.0, 0.25
#: The fewest looks that must see waiting messages before the worker counts as stalled: other workers may
#: empty the queue between two looks.
LOOKS = 4
#: If this many seconds pass between two looks, this process or its machine was stopped, and the consumer has
#: slept, too.
GAP_S = 15.0


class Reception(Protocol):
    """See :class:`celery_dlq.worker.reception.Reception`."""

    received: int
    stall: Stall | None

    def queues(self) -> Sequence[str]:
        """The queues that the worker should receive messages from."""

    def could_receive(self) -> bool:
        """Whether the worker could receive and run one more message now."""


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
    :param ends_worker: whether a stall ends the worker.
    """

    def __init__(
        self,
        worker: str,
        reception: Reception,
        waiting: Callable[[Sequence[str]], Mapping[str, int]],
        *,
        stall_after_s: float,
        ends_worker: bool,
        monotonic: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self._worker, self._reception, self._waiting = worker, reception, waiting
        self._stall_after_s, self._ends_worker = stall_after_s, ends_worker
        self._monotonic, self._now = monotonic, now
        self._look_s = min(LOOK_S, max(SOON_S, stall_after_s / LOOKS))
        self._received = reception.received
        self._suspicion: _Suspicion | None = None

    @property
    def wait_s(self) -> float:
        """Seconds until the next look."""
        if self._suspicion is None or self._reception.stall is not None:
            return self._look_s
        left_s = self._suspicion.since + self._stall_after_s - self._monotonic()
        return max(SOON_S, min(self._look_s, left_s))

    def look(self) -> Stall | Recovered | None:
        """What has changed: the worker is stalled now, or receives messages again; None if neither.

        :raises BrokerError: the broker does not answer. The stall, if any, continues; a suspicion is dropped.
        """
        if self._has_received():
            return self._end_stall()
        if self._reception.stall is not None:
            return None  # until it receives a message, whether or not others have emptied the queue
        suspicion, self._suspicion = self._suspicion, None
        waiting = self._seen_waiting()
        if not waiting:
            return None
        self._suspicion = self._strengthened(suspicion)
        return self._begin_stall(self._suspicion, waiting)

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

    def _begin_stall(self, suspicion: _Suspicion, waiting: Mapping[str, int]) -> Stall | None:
        lasted_s = suspicion.last - suspicion.since
        if lasted_s < self._stall_after_s or suspicion.looks < LOOKS:
            return None
        now = self._now()
        stall = Stall(
            worker=self._worker,
            since=now - timedelta(seconds=lasted_s),
            noticed_at=now,
            queues=tuple(sorted(waiting)),
            messages=sum(waiting.values()),
            ends_worker=self._ends_worker,
        )
        self._reception.stall = stall
        return stall

    def _end_stall(self) -> Recovered | None:
        stall, self._reception.stall = self._reception.stall, None
        if stall is None:
            return None
        return Recovered((self._now() - stall.noticed_at).total_seconds())
