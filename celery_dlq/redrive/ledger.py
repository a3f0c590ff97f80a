"""Where an operation stands in the store: what may be claimed for it, and what became of that."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from celery_dlq.errors import OperationError
from celery_dlq.letter import DeadLetter
from celery_dlq.operation import Counts, OperationState
from celery_dlq.redrive import guard
from celery_dlq.redrive.pace import Pace, Steps
from celery_dlq.redrive.room import Room, room_of
from celery_dlq.store.base import Operation, Store

#: Seconds between looks at what others did to the operation, and what became of its letters.
LOOK_S = 0.5
#: The same while nothing may be sent before something has changed.
WAIT_S = 0.1
#: Who aborts, for the audit.
GUARD = "refill guard"


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What is to be done next: letters to send, or a wait, or nothing any more."""

    letters: tuple[DeadLetter, ...] = ()
    #: Of their claim.
    token: str = ""
    wait_s: float = 0.0
    #: What it waits for, in words.
    waits_for: str = ""
    is_over: bool = False


@dataclass(kw_only=True)
class Settled:
    """What became of the letters of one claim. Those that are nowhere here may have been sent: their
    claim has to end first."""

    token: str
    #: Confirmed by the broker, with what was changed in each.
    sent: dict[str, str] = field(default_factory=dict)
    #: Of those, the ones of which nobody will report what became.
    silent: set[str] = field(default_factory=set)
    skipped: dict[str, str] = field(default_factory=dict)
    unsent: list[str] = field(default_factory=list)

    @property
    def known(self) -> int:
        """Letters of which it is known what became of them."""
        return len({*self.sent, *self.skipped, *self.unsent})


class Ledger:
    """Claims for an operation as much as it may send, and marks what was sent. Threads may claim at the same
    time, and while another one marks.

    :param batch: letters of one claim, at most.
    :param lease_s: how long a claim holds.
    """

    def __init__(
        self,
        store: Store,
        operation: Operation,
        *,
        batch: int,
        lease_s: float,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        should_stop: Callable[[], bool],
    ) -> None:
        pacing = operation.orders.pacing
        self._store, self.operation = store, operation
        self._batch, self._lease_s = batch, lease_s
        self._now, self._monotonic, self._should_stop = now, monotonic, should_stop
        self._pace = Pace(pacing.rate, pacing.ramp_s, monotonic=monotonic)
        self._steps = Steps(lease_s)
        #: Letters that are claimed and not settled, by claim; of one that is being made, as many as it may
        #: take.
        self._in_hand: dict[str, int] = {}
        #: When their claims were made.
        self._claimed_at: dict[str, float] = {}
        #: Held while it is decided what is to be done next, and how much of it.
        self._deciding = threading.Lock()
        #: Held while the store is told what was sent, or asked: what it counts as sent is not added once
        #: more.
        self._marking = threading.Lock()
        #: Held while what is in hand, or counted, changes; not while the store answers, which would keep
        #: those waiting who claim and send.
        self._changing = threading.RLock()
        self._look_at = monotonic()
        #: Whether the counts have to be asked for before they say what is out.
        self._is_rough = False
        self.counts = replace(operation.counts, sending=0)
        #: Nothing is left to be sent.
        self.is_done = not operation.counts.left

    def take(self) -> Taken:
        """The next letters, claimed; or why there are none.

        :raises StoreError: the store failed.
        """
        with self._deciding:
            if not self.goes_on():
                return Taken(is_over=True)
            # Asked first: what is given back while the store is asked for more is left, too.
            is_last, counts = self._standing()
            if self.is_stopped:
                return Taken(is_over=True)
            room = room_of(self.operation.orders, counts)
            if not room.size:
                return self._no_room(room, is_last)
            delay_s = self._pace.delay_s()
            if delay_s:
                return Taken(wait_s=delay_s)
            token = uuid.uuid4().hex
            size = self._pace.batch_size(min(room.size, self._batch, self._steps.size))
            self._hold(token, size)
        return self._claim(token, size, is_last)

    @property
    def has_much(self) -> bool:
        """Whether more is left than one claim takes, so that two may be made at once. Not where there is a
        rate: it counts what was taken."""
        with self._changing:
            free = self.counts.left - self.counts.sending
        return free > self._batch and self.operation.orders.pacing.rate is None

    def goes_on(self) -> bool:
        """Whether nobody has stopped it: neither a person nor its guard.

        :raises StoreError: the store failed.
        """
        if self._monotonic() >= self._look_at:
            self._look()
        return not self.is_stopped

    @property
    def is_stopped(self) -> bool:
        """Whether somebody has, as far as is known without a look at the store."""
        return self._should_stop() or self.operation.state is not OperationState.RUNNING

    def settle(self, settled: Settled) -> None:
        """Mark what became of a claim.

        :raises StoreError: the store failed.
        """
        with self._marking:
            in_hand = self._in_hand[settled.token]
            unknown = in_hand - settled.known
            self._settle(settled, is_all=not unknown)
            self._took(settled.token, in_hand)
            canary = self.operation.orders.pacing.canary
            with self._changing:
                # What had ended before its mark is counted twice now, and more than the canary may seem out.
                self._is_rough |= not guard.canary_succeeded(canary, self.counts)
                # Of what nothing is known stays in hand: this run is not done while its claim holds.
                self._hold(settled.token, unknown)
                self._add(settled)

    def is_late(self, taken: Taken) -> bool:
        """Whether its claim may end before it is marked."""
        return self._steps.is_late(self._monotonic() - self._claimed_at[taken.token])

    def _took(self, token: str, count: int) -> None:
        began = self._claimed_at.pop(token, None)
        if began is not None:
            self._steps.took(count, self._monotonic() - began)

    def _settle(self, settled: Settled, *, is_all: bool) -> None:
        operation_id, token, now = self.operation.id, settled.token, self._now()
        if settled.skipped:
            self._store.skip_sendings(operation_id, token, settled.skipped, now=now)
        if settled.unsent:
            self._store.release_sendings(operation_id, token, settled.unsent)
        # All else of a claim may be marked at once, but not when of some nothing is known.
        confirm = self._store.end_claim if is_all else self._store.confirm_sendings
        if settled.sent or is_all:
            confirm(operation_id, token, settled.sent, silent=settled.silent, now=now)

    def close(self) -> Operation:
        """The operation as it is now, done when nothing is left to send."""
        if self.is_done and self.operation.state is OperationState.RUNNING:
            self._move(OperationState.DONE, who=self.operation.who)
        self._refresh()
        return self.operation

    def _standing(self) -> tuple[bool, Counts]:
        """Whether nothing is in hand, and the counts."""
        is_rough, is_last, counts = self._known()
        if is_last and not counts.left:
            # What had ended when the store was looked at, and was marked after that, is counted twice.
            self._refresh()
            _, is_last, counts = self._known()
            is_rough = counts.left > 0
        while is_rough:
            # The guard is asked about every outcome before it makes room.
            self._look()
            is_rough, is_last, counts = self._known()
        return is_last, counts

    def _known(self) -> tuple[bool, bool, Counts]:
        with self._changing:
            return self._is_rough, not self._in_hand, self.counts

    def _no_room(self, room: Room, is_last: bool) -> Taken:
        if self.counts.left <= self.counts.sending:
            return self._nothing_left(is_last)
        self._look_at = min(self._look_at, self._monotonic() + WAIT_S)
        return Taken(wait_s=WAIT_S, waits_for=room.waits_for)

    def _claim(self, token: str, size: int, is_last: bool) -> Taken:
        taken, began = 0, self._monotonic()
        try:
            letters = self._claimed(token, size)
            taken = len(letters)
        finally:
            self._hold(token, taken)
        if not letters:
            return self._nothing_left(is_last)
        self._pace.took(taken)
        self._claimed_at[token] = began
        return Taken(letters=letters, token=token)

    def _claimed(self, token: str, size: int) -> tuple[DeadLetter, ...]:
        now = self._now()
        return self._store.claim_for(
            self.operation,
            # A copy of its own for each claim: two of one letter are never taken for one.
            token=token,
            lease_until=now + timedelta(seconds=self._lease_s),
            limit=size,
            now=now,
        ).letters

    def _hold(self, token: str, count: int) -> None:
        with self._changing:
            self._in_hand[token] = count
            if not count:
                del self._in_hand[token]
            self._count()

    def _nothing_left(self, is_last: bool) -> Taken:
        # What is in hand may come back unsent.
        self.is_done = is_last
        return Taken(is_over=self.is_done)

    def _add(self, settled: Settled) -> None:
        silent = len(settled.silent & settled.sent.keys())
        self._count(sent=len(settled.sent) - silent, unknown=silent, skipped=len(settled.skipped))

    def _count(self, *, sent: int = 0, unknown: int = 0, skipped: int = 0) -> None:
        known = self.counts
        self.counts = replace(
            known,
            # Not the store's: what an earlier runner left behind is claimed once more.
            sending=sum(self._in_hand.values()),
            sent=known.sent + sent,
            unknown=known.unknown + unknown,
            skipped=known.skipped + skipped,
        )

    def _look(self) -> None:
        began = self._monotonic()
        self._refresh()
        if self.operation.state is OperationState.RUNNING:
            cause = self._why_abort()
            if cause is not None:
                self._move(OperationState.ABORTED, who=GUARD, cause=cause)
        # The sendings of a large operation take time to count: at most a tenth of it all.
        now = self._monotonic()
        self._look_at = now + max(LOOK_S, 9 * (now - began))

    def _refresh(self) -> None:
        with self._marking:
            self._read()

    def _read(self) -> None:
        found = self._store.operation(self.operation.id)
        if found is None:
            raise OperationError(f"Operation {self.operation.id} is gone from the store.")
        with self._changing:
            self.operation, self.counts, self._is_rough = found, found.counts, False
            self._count()

    def _why_abort(self) -> str | None:
        orders, counts = self.operation.orders, self.counts
        canary = orders.pacing.canary
        if canary and guard.canary_is_out(canary, counts):
            endings = self._store.recent_endings(self.operation.id, canary)
            return guard.why_no_more(canary, counts, endings)
        judged = guard.judged(orders.guard, counts, canary) if orders.guard.enabled else 0
        if not judged:
            return None
        return guard.why_stop(orders.guard, self._store.recent_endings(self.operation.id, judged))

    def _move(self, to: OperationState, *, who: str, cause: str = "") -> None:
        with self._marking:
            try:
                self.operation = self._store.move_operation(
                    self.operation.id, to, who=who, cause=cause, now=self._now()
                )
            except OperationError:
                # Somebody was quicker, and has paused or cancelled it.
                self._read()
