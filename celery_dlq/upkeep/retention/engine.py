"""One round of retention: deletes the letters and the history that have been kept long enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from celery_dlq.errors import StoreUnavailable
from celery_dlq.store.base import Expiry, Kept, Lease, LetterKey
from celery_dlq.store.noted_act import NotedAct
from celery_dlq.upkeep.retention.definition import Keep, Retention

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: The share of the time in which a round uses the store, at most. It pauses in between, so that other work
#: comes first.
SHARE = 0.25

#: The most letters of one transaction, and the fewest that are still tried when transactions take too long.
MOST, FEWEST = 1_000, 25

#: Rows of history that are deleted in one transaction, of each kind.
HISTORY_ROWS = 500

#: Closed letters that are counted by one statement.
COUNTED = 20_000

#: The person in the audit.
WHO = "retention"

#: Waits this many seconds; returns whether to stop.
Pause = Callable[[float], bool]


@dataclass(frozen=True)
class PlanRow:
    """The closed letters that one entry of ``dlq_retention`` keeps."""

    #: None for the letters that no entry matches, which are kept for ever.
    keep: Keep | None
    kept: Kept


class RetentionEngine:
    """Deletes what has been kept long enough.

    :param store: returns the store.
    :param monotonic: measures how long transactions take, in seconds.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        retention: Retention,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.retention = retention
        self._open, self._monotonic, self._size = store, monotonic, MOST

    @property
    def _store(self) -> Store:
        return self._open()

    def plan(self) -> list[PlanRow]:
        """What each entry keeps, and what a round would delete now; at the end, the letters that no entry
        matches.

        :raises StoreError: the store failed.
        """
        expiries = self.retention.expiries(self._store.now())
        found: dict[int, Kept] = {}
        after: str | None = None
        while True:
            part, after = self._store.expiring.count(expiries, after, step=COUNTED)
            for number, kept in part.items():
                found[number] = found[number] + kept if number in found else kept
            if after is None:
                break
        entries: list[tuple[int, Keep | None]] = [*enumerate(self.retention.letters), (-1, None)]
        return [PlanRow(keep, found.get(number, Kept.none())) for number, keep in entries]

    def run(self, lease: Lease, pause: Pause) -> int:
        """Delete expired letters and old history; returns how many letters were deleted. The letters are
        audited as one act.

        :raises LeaseLost: another process has the lease now.
        :raises StoreError: the store failed. What was deleted before that stays deleted.
        """
        deleted = self._delete_letters(lease, pause)
        self._delete_history(pause)
        return deleted

    def _delete_letters(self, lease: Lease, pause: Pause) -> int:
        expiries = self.retention.expiries(self._store.now())
        act = NotedAct(self._store, who=WHO, act="expire", detail={"keep": _shown(expiries)})
        keys, deleted = self._expired(expiries, pause), 0
        while chunk := tuple(islice(keys, self._size)):
            began = self._monotonic()
            deleted += self._delete(chunk, lease)
            act.reached(deleted)
            if pause(self._pause_after(began)):
                break
        return deleted

    def _expired(self, expiries: tuple[Expiry, ...], pause: Pause) -> Iterator[LetterKey]:
        after: str | None = None
        while True:
            began = self._monotonic()
            found = self._store.expiring.find(expiries, after)
            yield from found.keys
            after = found.next
            if after is None or (not found.keys and pause(self._pause_after(began))):
                return

    def _delete(self, keys: tuple[LetterKey, ...], lease: Lease) -> int:
        """Delete these letters. If the transaction takes too long, this and the next ones are smaller."""
        try:
            deleted = len(self._store.deleting.delete_closed(keys, lease))
        except StoreUnavailable:
            if len(keys) <= FEWEST:
                raise
            self._size = max(FEWEST, len(keys) // 2)
            return sum(
                self._delete(keys[at : at + self._size], lease)
                for at in range(0, len(keys), self._size)
            )
        self._size = min(MOST, 2 * self._size)
        return deleted

    def _delete_history(self, pause: Pause) -> None:
        bounds = self.retention.history_bounds(self._store.now())
        while True:
            began = self._monotonic()
            if not self._store.history.prune(bounds, limit=HISTORY_ROWS):
                return
            if pause(self._pause_after(began)):
                return

    def _pause_after(self, began: float) -> float:
        spent = self._monotonic() - began
        return spent * (1 / SHARE - 1)


def _shown(expiries: tuple[Expiry, ...]) -> list[dict[str, object]]:
    """The expiries, for the audit."""
    return [
        {
            "filter": one.where.to_dict(),
            "closed_before": None if one.before is None else one.before.isoformat(),
        }
        for one in expiries
    ]
