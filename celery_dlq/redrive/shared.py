"""The ledger of a process that carries an operation together with others."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from celery_dlq.model.operation import Counts, OperationState
from celery_dlq.redrive.context import Clock
from celery_dlq.redrive.flow.pace import FIRST, Pace
from celery_dlq.redrive.ledger import LOCKED, WAIT_S, BatchResult, Ledger, NextStep
from celery_dlq.store.base import Allotment, Operation, Turn

if TYPE_CHECKING:
    from celery_dlq.store import Store


@dataclass(frozen=True, kw_only=True)
class _Answer(Allotment):
    """How many letters this process may claim. If it may claim none: why, and for how many seconds it waits,
    or that the operation is at its end."""

    wait_s: float = 0.0
    waits_for: str = ""
    is_end: bool = False


class SharedLedger(Ledger):
    """Claims and marks letters of an operation that several processes carry.

    How many letters it may claim is decided in the store, one process after the other. Letters that were
    allotted to any process since the last look count as being sent, and outcomes that have come since then do
    not count yet. So all processes together never send more than one of them would.

    :param holder: this process, as its lease names it.
    """

    def __init__(
        self,
        store: Store,
        operation: Operation,
        clock: Clock,
        *,
        holder: str,
        batch: int,
        lease_s: float,
        should_stop: Callable[[], bool],
    ) -> None:
        self._holder = holder
        #: How many letters were allotted to all processes, as far as this one knows.
        self._allotted = 0
        #: The same after this process has claimed and found no letter, if no other process held one.
        self._empty_at: int | None = None
        super().__init__(
            store, operation, clock, batch=batch, lease_s=lease_s, should_stop=should_stop
        )
        # Another process may hold the last letters.
        self.is_done = False

    def take(self) -> NextStep:
        """Claim the next letters. If there are none, the step says why.

        :raises StoreError: the store failed.
        """
        if not self.goes_on():
            return NextStep(is_over=True)
        token = uuid.uuid4().hex
        turn, answer = self._ask(token)
        self._note(turn.allotted + answer.size)
        if turn.state is not OperationState.RUNNING or answer.is_end:
            return self._end()
        if answer.waits_for:
            self._look_soon()
        if not answer.size:
            return NextStep(wait_s=answer.wait_s, waits_for=answer.waits_for)
        step = self._claimed(token, answer.size, is_reserved=True)
        if step.letters:
            return step
        if turn.is_idle and self._store.claims.are_left(self.operation):
            self._empty_at = None
            self._look_soon()
            return NextStep(wait_s=WAIT_S, waits_for=LOCKED)
        self._empty_at = turn.allotted + answer.size if turn.is_idle else None
        return step

    @property
    def has_much(self) -> bool:
        """Never: the other processes make claims at the same time, and have to pass over the letters of each
        claim that is being made."""
        return False

    def _ask(self, token: str) -> tuple[Turn, _Answer]:
        now = self._clock.now()
        return self._store.turns.take(
            self.operation,
            token=token,
            holder=self._holder,
            lease_until=now + timedelta(seconds=self._lease_s),
            now=now,
            decide=lambda turn: self._decide(turn, now),
        )

    def _decide(self, turn: Turn, now: datetime) -> _Answer:
        if turn.state is not OperationState.RUNNING:
            return _Answer()
        with self._counting:
            counts = self._counts_at(turn.allotted)
        if turn.is_idle and (not counts.left or turn.allotted == self._empty_at):
            return _Answer(is_end=True)
        if not counts.unclaimed:
            return _Answer(wait_s=WAIT_S, waits_for="letters that other processes may give back")
        allowance = self._allowance(counts)
        if not allowance.size:
            return _Answer(wait_s=WAIT_S, waits_for=allowance.waits_for)
        most = min(allowance.size, self._batch, self._steps.size, self._part(counts.unclaimed))
        return self._paced(turn, now, most)

    def _part(self, unclaimed: int) -> int:
        """The part of one process, so that the others do not wait for one that got the last large batch."""
        return max(FIRST, unclaimed // self.operation.orders.pacing.processes)

    def _paced(self, turn: Turn, now: datetime, most: int) -> _Answer:
        pacing, start = self.operation.orders.pacing, turn.paced_from
        pace = Pace(
            pacing.rate,
            pacing.ramp_s,
            monotonic=now.timestamp,
            start_s=None if start is None else start.timestamp(),
            sent=turn.allotted,
        )
        delay_s = pace.delay_s()
        if delay_s:
            return _Answer(wait_s=delay_s)
        start = datetime.fromtimestamp(pace.start_s, timezone.utc)
        return _Answer(size=pace.batch_size(most), paced_from=start)

    def _end(self) -> NextStep:
        """The operation has ended, or nothing is left. The store decides whether it is done: not while a
        process holds letters."""
        with self._at_store:
            found = self._read()
            if found.state is OperationState.RUNNING:
                found = self._moved(OperationState.DONE, who=found.who)
            self._install(found)
        return NextStep(is_over=self.is_stopped, wait_s=WAIT_S)

    def _note(self, allotted: int) -> None:
        with self._counting:
            self._allotted = max(self._allotted, allotted)
            self._count()

    def _add(self, result: BatchResult) -> None:
        """Nothing: the next look counts the letters of ``result``."""

    def _count(self) -> None:
        self.counts = self._counts_at(max(self._allotted, self.operation.allotted))

    def _counts_at(self, allotted: int) -> Counts:
        """The counts of the last look, once this many letters were allotted in all."""
        # The look has read this number first, so no letter is missing, and some may be counted twice.
        since = allotted - self.operation.allotted
        return replace(self._stored, sending=self._stored.sending + since)
