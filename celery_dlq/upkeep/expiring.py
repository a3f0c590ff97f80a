"""Removes the letters and the history that have been kept long enough (``dlq_retention``).

One worker at a time runs a round, in small transactions with pauses. Letters are deleted, or moved into the
archive. Open letters never expire.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from celery_dlq.archive.archiving import Archiver, chunks
from celery_dlq.errors import OperationError
from celery_dlq.retry.policy import Uniform, uniform
from celery_dlq.store.base import (
    Expiry,
    Lease,
    LetterKey,
    OngoingAct,
    Pause,
    Pauses,
    Portion,
)
from celery_dlq.store.keeping import Holding, Kept
from celery_dlq.store.tenure import Tenure, kept
from celery_dlq.upkeep.periodic import Periodic
from celery_dlq.upkeep.retention import Retention

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Seconds between two rounds of all workers together.
ROUND_S = 3_600.0

#: Seconds until a worker asks whether a round is due, at most. Few questions are asked, because no letter is
#: urgent to delete.
ASK_S = 600.0

#: The lease of the process that runs a round, and the one that no process gets within an hour of the last
#: round. All apps that share a store have the same ones.
LEASE, TURN = "retention", "retention.turn"

#: Closed letters that one statement goes through.
STEP = 5_000

#: Rows of history that are deleted in one transaction, of each kind; and the most letters.
HISTORY_ROWS, MOST = 500, 1_000

#: Stands for the person in the audit of a worker's round.
WHO = "retention"

#: Makes the archiver that moves letters while the lease is held. The name and the mapping are the person
#: and the detail of the act in the audit.
NewArchiver = Callable[[Lease, str, Mapping[str, object]], Archiver]


@dataclass(frozen=True)
class Round:
    """The result of a round."""

    #: Letters that were deleted, or moved into the archive.
    letters: int
    #: False if it was stopped before its end.
    is_over: bool


class RetentionEngine:
    """Removes the letters and the history that have been kept long enough.

    :param store: returns the store.
    :param archiver: makes the archiver that moves letters; None to delete them.
    :param monotonic: measures how long transactions take, in seconds.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        retention: Retention,
        *,
        archiver: NewArchiver | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.retention = retention
        self._open, self._new_archiver, self._monotonic = store, archiver, monotonic

    def plan(self) -> tuple[Holding, ...]:
        """The letters that each entry keeps, and those that a round would delete now; at the end, the letters
        that no entry matches. Counts all closed letters.

        :raises StoreError: the store failed.
        """
        return _Work(self._open(), lambda _seconds: False, self._monotonic).count(self.retention)

    def run(self, lease: Lease, pause: Pause, *, who: str = WHO) -> Round:
        """Delete old history, and expired letters. With an archive, letters are moved into it. They are
        audited as one act of ``who``. At the end, count the letters that are left, and write the report.

        :raises LeaseLost: another process has the lease now.
        :raises ArchiveError: the archive failed; the letters that are not in it stay in the store.
        :raises StoreError: the store failed. What was deleted before that stays deleted.
        """
        store = self._open()
        work = _Work(store, pause, self._monotonic)
        try:
            work.delete_history(self.retention)
            expiries = self.retention.expiries(store.now())
            detail = {"keep": _shown(expiries)}
            if self._new_archiver is None:
                act = OngoingAct(who=who, act="expire", detail=detail, at=store.now())
                work.delete(expiries, lease, act)
            else:
                work.move(expiries, self._new_archiver(lease, who, detail))
            left = work.count(self.retention)
        except _StoppedError:
            return Round(work.removed, is_over=False)
        store.reports.note_round(left, removed=work.removed)
        return Round(work.removed, is_over=True)


class _StoppedError(Exception):
    """The round must stop."""


class _Work:
    """The steps of one round. It pauses after each of them."""

    #: Letters that were deleted, or moved into the archive.
    removed = 0

    def __init__(self, store: Store, pause: Pause, monotonic: Callable[[], float]) -> None:
        self._store, self._pauses = store, Pauses(pause, monotonic)

    def delete_history(self, retention: Retention) -> None:
        bounds = retention.history_bounds(self._store.now())
        self._store.requests.prune(bounds.history)
        while self._store.history.prune(bounds, limit=HISTORY_ROWS):
            self._rest()

    def delete(self, expiries: Sequence[Expiry], lease: Lease, act: OngoingAct) -> None:
        portion = Portion(MOST)
        for keys in chunks(self._expired(expiries), MOST):
            left = keys
            while left:
                attempt = partial(self._delete_first, left, lease, act)
                deleted, act = portion.attempt(attempt)
                left = left[portion.size :]
                self._count_and_rest(deleted)

    def move(self, expiries: Sequence[Expiry], archiver: Archiver) -> None:
        """Move letters into the archive."""
        for moved in archiver.archive(self._expired(expiries)):
            self._count_and_rest(moved)

    def count(self, retention: Retention) -> tuple[Holding, ...]:
        """The letters that each entry keeps; at the end, the letters that no entry matches."""
        now = self._store.now()
        found: dict[int, Kept] = {}
        read = partial(self._store.expiring.count, retention.expiries(now), now=now)
        portion, after, is_over = Portion(STEP), None, False
        while not is_over:
            part, after = portion.attempt(partial(read, after))
            for number, more in part.items():
                found[number] = found.get(number, Kept.none()) + more
            is_over = after is None
            self._rest()
        entries = (
            Holding(where=keep.where, age=keep.age, kept=found.get(number, Kept.none()))
            for number, keep in enumerate(retention.letters)
        )
        return (*entries, Holding(where=None, age=None, kept=found.get(-1, Kept.none())))

    def _expired(self, expiries: Sequence[Expiry]) -> Iterator[LetterKey]:
        portion, after, is_over = Portion(STEP), None, False
        while not is_over:
            found = portion.attempt(partial(self._store.expiring.find, expiries, after))
            yield from found.rows
            after = found.next
            is_over = after is None
            if not is_over and not found.rows:
                self._rest()

    def _delete_first(
        self, keys: Sequence[LetterKey], lease: Lease, act: OngoingAct, size: int
    ) -> tuple[int, OngoingAct]:
        return self._store.deleting.delete_closed(keys[:size], lease, act)

    def _count_and_rest(self, removed: int) -> None:
        self.removed += removed
        self._rest()

    def _rest(self) -> None:
        """Pause.

        :raises _StoppedError: the round must stop.
        """
        if self._pauses.rest():
            raise _StoppedError


def _shown(expiries: Iterable[Expiry]) -> list[dict[str, object]]:
    """The expiries, for the audit."""
    return [
        {
            "filter": one.where.to_dict(),
            "closed_before": None if one.before is None else one.before.isoformat(),
        }
        for one in expiries
    ]


@contextmanager
def removing(store: Store, holder: str) -> Iterator[tuple[Lease, Callable[[], bool]]]:
    """The lease under which letters are removed, until the block ends; and a function that says whether it is
    still held.

    :param holder: says which act needs it.
    :raises OperationError: another process has it.
    """
    tenure = Tenure(lambda: store, LEASE, f"{holder}/{os.getpid()}/{uuid.uuid4().hex}")
    lease = tenure.prolong()
    if lease is None:
        raise OperationError(
            "A worker or another command removes letters at the moment. Try again in a minute."
        )
    try:
        with kept(tenure, lease) as is_held:
            yield lease, is_held
    finally:
        tenure.end()


class RetentionThread(Periodic):
    """Runs a round of retention whenever no worker has run one within an hour.

    :param holder: identifies this worker among all.
    :param draw: random waits, so that workers do not ask at the same moment.
    """

    does = "retention"
    text_stopped = "expired letters are not removed"
    text_resumed = "expired letters are removed again"

    def __init__(self, dlq: Any, holder: str, *, draw: Uniform = uniform) -> None:
        super().__init__(dlq)
        self._draw, self._tenure = draw, Tenure(lambda: dlq.store, LEASE, holder)

    def pause_s(self) -> float:
        """Seconds until the next question."""
        return self._draw(0.0, ASK_S)

    def round(self) -> None:
        """Run a round if one is due."""
        leases = self._dlq.store.leases
        # A new holder each time, because this worker waits for the next turn like all others.
        turn = leases.take(TURN, holder=uuid.uuid4().hex, seconds=ROUND_S)
        if turn is None:
            return
        is_over = False
        try:
            is_over = self._comes_to_its_end()
        finally:
            if not is_over:
                leases.give_up(turn)
        if is_over:
            self.log_once("")

    def _comes_to_its_end(self) -> bool:
        """Run a round, unless another process runs one."""
        lease = self._tenure.prolong()
        if lease is None:
            return False
        try:
            with kept(self._tenure, lease) as is_held:
                ended: Round = self._dlq.retention.run(
                    lease, lambda seconds: self.stopping.wait(seconds) or not is_held()
                )
        finally:
            self._tenure.end()
        return ended.is_over
