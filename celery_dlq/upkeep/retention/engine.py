"""One round of retention: deletes the letters and the history that have been kept long enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from celery_dlq.archive.archiving import Archiver
from celery_dlq.store.base import Expiry, Lease, LetterKey, OngoingAct
from celery_dlq.store.keeping import Holding, Kept
from celery_dlq.store.portion import Portion
from celery_dlq.upkeep.retention.definition import Retention
from celery_dlq.upkeep.retention.removing import Deleter, Mover, Remover

if TYPE_CHECKING:
    from celery_dlq.store import Store

T = TypeVar("T")

#: The share of the time in which a round uses the store, at most. It pauses in between, so that other work
#: comes first.
SHARE = 0.25

#: Closed letters that one statement goes through.
STEP = 5_000

#: Rows of history that are deleted in one transaction, of each kind.
HISTORY_ROWS = 500

#: Stands for the person in the audit of a worker's round.
WHO = "retention"

#: Makes what moves letters into the archive while the lease is held. The name and the mapping are the person
#: and the detail of the act in the audit.
NewArchiver = Callable[[Lease, str, Mapping[str, object]], Archiver]


#: Waits this many seconds; returns whether to stop.
Pause = Callable[[float], bool]


@dataclass(frozen=True)
class Round:
    """The result of a round."""

    #: Letters that were deleted, or moved into the archive.
    letters: int
    #: False if it was stopped before its end.
    is_over: bool


class _StoppedError(Exception):
    """The round must stop."""


class RetentionEngine:
    """Deletes what has been kept long enough.

    :param store: returns the store.
    :param archiver: makes what moves letters into the archive; None to delete them.
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

    @property
    def _store(self) -> Store:
        return self._open()

    def plan(self) -> tuple[Holding, ...]:
        """What each entry keeps, and what a round would delete now; at the end, the letters that no entry
        matches. Counts all closed letters.

        :raises StoreError: the store failed.
        """
        return self._count(lambda _began: None)

    def run(self, lease: Lease, pause: Pause, *, who: str = WHO) -> Round:
        """Delete old history, and expired letters. With an archive, letters are moved into it. They are
        audited as one act of ``who``. At the end, count the letters that are left, and write the report.

        :raises LeaseLost: another process has the lease now.
        :raises ArchiveError: the archive failed; the letters that are not in it stay in the store.
        :raises StoreError: the store failed. What was deleted before that stays deleted.
        """
        removed = 0
        try:
            self._delete_history(pause)
            for more in self._remove_letters(lease, pause, who):
                removed += more
            left = self._count(lambda began: self._rest(began, pause))
        except _StoppedError:
            return Round(removed, is_over=False)
        self._store.reports.note_round(left, removed=removed)
        return Round(removed, is_over=True)

    def _remove_letters(self, lease: Lease, pause: Pause, who: str) -> Iterator[int]:
        """Remove the letters that have expired; yields how many in each step."""
        expiries = self.retention.expiries(self._store.now())
        remover = self._remover(lease, who, {"keep": _shown(expiries)})
        began = self._monotonic()
        for more in self._steps(remover, expiries, pause):
            yield more
            self._rest(began, pause)
            began = self._monotonic()

    def _steps(self, remover: Remover, expiries: tuple[Expiry, ...], pause: Pause) -> Iterator[int]:
        yield from remover.finish()
        keys = self._expired(expiries, pause)
        while chunk := tuple(islice(keys, remover.size)):
            yield from remover.remove(chunk)

    def _remover(self, lease: Lease, who: str, detail: Mapping[str, object]) -> Remover:
        if self._new_archiver is not None:
            return Mover(self._new_archiver(lease, who, detail))
        act = OngoingAct(who=who, act="expire", detail=detail, at=self._store.now())
        return Deleter(self._store, lease, act)

    def _expired(self, expiries: tuple[Expiry, ...], pause: Pause) -> Iterator[LetterKey]:
        began = self._monotonic()
        for keys, after in _in_steps(partial(self._find, expiries)):
            yield from keys
            if after is not None and not keys:
                self._rest(began, pause)
            began = self._monotonic()

    def _find(
        self, expiries: tuple[Expiry, ...], after: str | None, step: int
    ) -> tuple[Sequence[LetterKey], str | None]:
        found = self._store.expiring.find(expiries, after, step)
        return found.keys, found.next

    def _count(self, rest: Callable[[float], None]) -> tuple[Holding, ...]:
        """What each entry keeps.

        :param rest: is called after each step, with the moment at which the step began.
        """
        found: dict[int, Kept] = {}
        began = self._monotonic()
        for part in self._counted():
            for number, kept in part.items():
                found[number] = found.get(number, Kept.none()) + kept
            rest(began)
            began = self._monotonic()
        return self._holdings(found)

    def _counted(self) -> Iterator[Mapping[int, Kept]]:
        """All closed letters, by the index of the entry that counts for them, or -1; in steps."""
        now = self._store.now()
        expiries = self.retention.expiries(now)
        for part, _after in _in_steps(partial(self._store.expiring.count, expiries, now=now)):
            yield part

    def _holdings(self, found: Mapping[int, Kept]) -> tuple[Holding, ...]:
        entries = (
            Holding(where=keep.where, age=keep.age, kept=found.get(number, Kept.none()))
            for number, keep in enumerate(self.retention.letters)
        )
        return (*entries, Holding(where=None, age=None, kept=found.get(-1, Kept.none())))

    def _delete_history(self, pause: Pause) -> None:
        bounds = self.retention.history_bounds(self._store.now())
        while True:
            began = self._monotonic()
            if not self._store.history.prune(bounds, limit=HISTORY_ROWS):
                return
            self._rest(began, pause)

    def _rest(self, began: float, pause: Pause) -> None:
        """Pause for as long as the share of the time asks after a step that began at ``began``.

        :raises _StoppedError: the round must stop.
        """
        spent = self._monotonic() - began
        if pause(spent * (1 / SHARE - 1)):
            raise _StoppedError


def _in_steps(
    read: Callable[[str | None, int], tuple[T, str | None]],
) -> Iterator[tuple[T, str | None]]:
    """What ``read`` returns for one step through the closed letters after the other. The steps get smaller
    when one takes too long.

    :param read: is given the place at which the step begins, and the number of letters; also returns the
        place of the next step, or None at the end.
    """
    after: str | None = None
    portion = Portion(STEP)
    while True:
        part, after = portion.attempt(partial(read, after))
        yield part, after
        if after is None:
            return


def _shown(expiries: tuple[Expiry, ...]) -> list[dict[str, object]]:
    """The expiries, for the audit."""
    return [
        {
            "filter": one.where.to_dict(),
            "closed_before": None if one.before is None else one.before.isoformat(),
        }
        for one in expiries
    ]
