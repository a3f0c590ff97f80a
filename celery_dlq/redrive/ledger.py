"""Claims letters for one operation and marks those that were sent. The canary, the guard and the pace decide
how many."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from celery_dlq.errors import OperationError
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.operation import Counts, OperationState
from celery_dlq.redrive import pacing
from celery_dlq.redrive.context import Clock
from celery_dlq.store.base import Operation

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Seconds between looks at the store, for new outcomes, and for changes that others made to the operation.
LOOK_S = 0.5
#: Polling interval while sending is blocked, in seconds.
WAIT_S = 0.1
#: The reason for a wait after a claim that got no letters although some are left: the transaction of a
#: broken connection keeps its locks until the server ends it.
LOCKED = "letters that another transaction has locked"
#: The name under which the audit records that the guard aborted an operation.
GUARD = "refill guard"


@dataclass(frozen=True, kw_only=True)
class NextStep:
    """The next step of a run: letters to send, a wait, or the end."""

    letters: tuple[DeadLetter, ...] = ()
    #: The token of their claim, and when it was made, by the monotonic clock.
    token: str = ""
    claimed_at: float = 0.0
    wait_s: float = 0.0
    #: The reason for the wait, for people.
    waits_for: str = ""
    is_end: bool = False


@dataclass(kw_only=True)
class BatchResult:
    """The fates of the letters of one claim. Letters that are missing here have an unknown fate: they may
    have been sent, and stay claimed until the lease ends."""

    token: str
    #: Confirmed by the broker, each with the change that was made in it.
    sent: dict[str, str] = field(default_factory=dict)
    #: Sent letters whose tasks do not report outcomes.
    silent: set[str] = field(default_factory=set)
    skipped: dict[str, str] = field(default_factory=dict)
    unsent: list[str] = field(default_factory=list)

    @property
    def known(self) -> int:
        """How many letters have a known fate."""
        return len({*self.sent, *self.skipped, *self.unsent})


class _InHand(NamedTuple):
    """Letters that are claimed and not marked. While the claim is being made, the number that it may take."""

    letters: int
    since: float


class Ledger:
    """Claims letters for an operation and marks those that were sent. Several threads may claim at the same
    time, also while another one marks.

    Letters in hand and marked letters are counted here, outcomes in the store. An outcome may come before the
    mark of its letter, so the two are never added up: the letters that await an outcome are the marked ones
    less the ended ones.

    :param batch: the most letters of one claim.
    :param lease_s: how long a claim holds.
    """

    operation: Operation
    #: Where its letters are, as far as is known without a look at the store.
    counts: Counts
    #: The counts of the last look, plus the letters that were skipped or became unknown since then.
    _stored: Counts

    def __init__(
        self,
        store: Store,
        operation: Operation,
        clock: Clock,
        *,
        batch: int,
        lease_s: float,
        should_stop: Callable[[], bool],
    ) -> None:
        paced = operation.orders.pacing
        self._store, self._clock, self._should_stop = store, clock, should_stop
        self._batch, self._lease_s = batch, lease_s
        self._pace = pacing.Pace(paced.rate, monotonic=clock.monotonic)
        self._steps = pacing.Steps(lease_s)
        #: By the token of the claim.
        self._in_hand: dict[str, _InHand] = {}
        #: Letters that are marked as sent.
        self._marked = 0
        #: Held for each mark and each look, so that the counts of a look include every mark that was made.
        self._at_store = threading.Lock()
        #: Held while the counts change or decide the size of a claim. A thread that has it does not call
        #: the store, because a call may take long.
        self._counting = threading.Lock()
        self._look_at = self._began = clock.monotonic()
        self._install(operation)
        #: Whether nothing is left to be sent.
        self.is_done: bool = not self.counts.left

    def take(self) -> NextStep:
        """Claim the next letters. If there are none, the step says why.

        :raises StoreError: the store failed.
        """
        if not self.may_continue():
            return NextStep(is_end=True)
        with self._counting:
            is_through = not self._in_hand and not self.counts.left
        if is_through:
            return self._end()
        with self._counting:
            allowance = pacing.allowance_of(
                self.operation.orders, self.counts, self._clock.monotonic() - self._began
            )
            if not self.counts.unclaimed:
                return NextStep()  # letters in hand may come back unsent
            if not allowance.size:
                self._look_at = min(self._look_at, self._clock.monotonic() + WAIT_S)
                return NextStep(wait_s=WAIT_S, waits_for=allowance.waits_for)
            delay_s = self._pace.delay_s()
            if delay_s:
                return NextStep(wait_s=delay_s)
            size = self._pace.batch_size(min(allowance.size, self._batch, self._steps.size))
            is_last, token = not self._in_hand, uuid.uuid4().hex
            self._hold(token, _InHand(size, self._clock.monotonic()))
        return self._claim(token, size, is_last)

    @property
    def has_much(self) -> bool:
        """Whether two claims may run at the same time. Never with a rate, because a rate counts the letters
        that were claimed."""
        return self.counts.unclaimed > self._batch and self.operation.orders.pacing.rate is None

    def may_continue(self) -> bool:
        """Whether neither a person nor the guard has stopped the operation.

        :raises StoreError: the store failed.
        """
        if self._is_look_due():
            with self._at_store:
                if self._is_look_due():  # another thread may have looked in the meantime
                    self._look()
        return not self.is_stopped

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped, as of the last look at the store."""
        return self._should_stop() or self.operation.state is not OperationState.RUNNING

    def mark(self, result: BatchResult) -> None:
        """Mark the fates of the letters of a claim.

        :raises StoreError: the store failed.
        """
        with self._at_store:
            claimed = self._in_hand[result.token]
            unknown = claimed.letters - result.known
            self._write(result, is_all=not unknown)
            with self._counting:
                self._steps.took(claimed.letters, self._clock.monotonic() - claimed.since)
                self._add(result)
                # The run cannot finish before the claim of letters with an unknown fate expires.
                self._hold(result.token, claimed._replace(letters=unknown))

    def is_late(self, step: NextStep) -> bool:
        """Whether the claim of ``step`` may expire before it is marked."""
        return self._steps.is_late(self._clock.monotonic() - step.claimed_at)

    def close(self) -> Operation:
        """The operation as it is now; done when nothing is left to send."""
        with self._at_store:
            if self.is_done and self.operation.state is OperationState.RUNNING:
                self._install(self._moved(OperationState.DONE, who=self.operation.who))
            else:
                self._install(self._read())
        return self.operation

    def _end(self) -> NextStep:
        """By the counts here, no letter is left. The store decides whether that is true."""
        with self._at_store:
            self._install(self._read())
        self.is_done = not self.counts.left
        if not self.is_done:
            self._look_at = self._clock.monotonic()  # the guard has to judge before more is sent
        return NextStep(is_end=self.is_done or self.is_stopped)

    def _claim(self, token: str, size: int, is_last: bool) -> NextStep:
        """Claim up to ``size`` letters.

        :param is_last: whether no other letter was in hand. Otherwise letters may come back unsent, and an
            empty claim is not the end.
        """
        began, letters = self._clock.monotonic(), tuple[DeadLetter, ...]()
        try:
            letters = self._take_letters(token, size)
        finally:
            with self._counting:
                self._hold(token, _InHand(len(letters), began))
                self._pace.took(len(letters))
        if letters:
            return NextStep(letters=letters, token=token, claimed_at=began)
        if is_last and self._store.claims.are_left(self.operation):
            return NextStep(wait_s=WAIT_S, waits_for=LOCKED)
        self.is_done = is_last
        return NextStep(is_end=is_last)

    def _take_letters(self, token: str, size: int) -> tuple[DeadLetter, ...]:
        now = self._clock.now()
        return self._store.claims.take(
            self.operation,
            # The token names the copy of each message, so no two claims may share one.
            token=token,
            lease_until=now + timedelta(seconds=self._lease_s),
            limit=size,
            now=now,
            of_every_cause=self.counts.out < pacing.first_letters(self.operation.orders),
        ).letters

    def _write(self, result: BatchResult, *, is_all: bool) -> None:
        operation_id, token, now = self.operation.id, result.token, self._clock.now()
        if result.skipped:
            self._store.claims.skip(operation_id, token, result.skipped, now=now)
        if result.unsent:
            self._store.claims.release(operation_id, token, result.unsent)
        # A claim can be ended in one write only if the fate of every letter is known.
        if result.sent or is_all:
            self._store.claims.confirm(
                operation_id, token, result.sent, silent=result.silent, now=now, is_all=is_all
            )

    def _add(self, result: BatchResult) -> None:
        silent = len(result.silent & result.sent.keys())
        self._marked += len(result.sent)
        self._stored = replace(
            self._stored,
            unknown=self._stored.unknown + silent,
            skipped=self._stored.skipped + len(result.skipped),
        )

    def _hold(self, token: str, claimed: _InHand) -> None:
        self._in_hand[token] = claimed
        if not claimed.letters:
            del self._in_hand[token]
        self._count()

    def _count(self) -> None:
        stored, in_hand = self._stored, sum(claimed.letters for claimed in self._in_hand.values())
        ended = stored.succeeded + stored.failed + stored.unknown
        # Outcomes that came before the mark of their letters, which are still in hand.
        unmarked = max(0, ended - self._marked)
        self.counts = replace(
            stored,
            # Not the store's number, because letters that an earlier run left behind are claimed again.
            sending=max(0, in_hand - unmarked),
            left_behind=0,
            sent=max(0, self._marked - ended),
            unmarked=unmarked,
        )

    def _is_look_due(self) -> bool:
        return self._clock.monotonic() >= self._look_at

    def _look(self) -> None:
        """Ask the store for new outcomes, and for changes that others made to the operation. The guard judges
        the outcomes before they make room for more letters."""
        began = self._clock.monotonic()
        found = self._read()
        if found.state is OperationState.RUNNING:
            cause = self._why_abort(found)
            if cause is not None:
                found = self._moved(OperationState.ABORTED, who=GUARD, cause=cause)
        self._install(found)
        # Counting the sendings of a large operation takes time. At most a tenth of the run is spent on it.
        now = self._clock.monotonic()
        self._look_at = now + max(LOOK_S, 9 * (now - began))

    def _why_abort(self, found: Operation) -> str | None:
        orders, counts = found.orders, found.counts
        canary = orders.pacing.canary
        if canary and pacing.canary_is_out(canary, counts):
            endings = self._store.sendings.recent_endings(found.id, canary)
            return pacing.why_no_more(canary, counts, endings)
        newest = pacing.judged(orders.guard, counts, canary) if orders.guard.enabled else 0
        if not newest:
            return None
        return pacing.why_stop(orders.guard, self._store.sendings.recent_endings(found.id, newest))

    def _install(self, found: Operation) -> None:
        with self._counting:
            self.operation, self._stored = found, found.counts
            self._marked = found.counts.out - found.counts.unmarked
            self._count()

    def _read(self) -> Operation:
        found = self._store.operations.get(self.operation.id)
        if found is None:
            raise OperationError(f"Operation {self.operation.id} is gone from the store.")
        return found

    def _moved(self, to: OperationState, *, who: str, cause: str = "") -> Operation:
        try:
            return self._store.operations.move(
                self.operation.id, to, who=who, cause=cause, now=self._clock.now()
            )
        except OperationError:
            # It was paused or cancelled in the meantime.
            return self._read()
