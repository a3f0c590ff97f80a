"""The two ways in which expired letters leave the store: they are deleted, or moved into the archive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from celery_dlq.archive.archiving import Archiver
from celery_dlq.archive.segment import MAX_LETTERS
from celery_dlq.store.base import Lease, LetterKey, OngoingAct
from celery_dlq.store.portion import Portion

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: The most letters that are deleted in one transaction.
MOST = 1_000


class Remover(Protocol):
    """Removes letters from the store, and has each transaction audit the letters that it removes."""

    @property
    def size(self) -> int:
        """The letters that it takes at a time."""

    def finish(self) -> Iterator[int]:
        """End what another process has begun; yields how many letters that removes."""

    def remove(self, keys: Sequence[LetterKey]) -> Iterator[int]:
        """Remove those letters that have not changed; yields how many in each step."""


class Deleter:
    """Deletes letters, in transactions that get smaller when one takes too long.

    :param act: the act of which the deletions are a part, for the audit.
    """

    def __init__(self, store: Store, lease: Lease, act: OngoingAct) -> None:
        self._store, self._lease, self._act = store, lease, act
        self._portion = Portion(MOST)

    @property
    def size(self) -> int:
        """The letters that it takes at a time."""
        return self._portion.size

    def finish(self) -> Iterator[int]:
        """Nothing: each transaction is complete in itself."""
        yield from ()

    def remove(self, keys: Sequence[LetterKey]) -> Iterator[int]:
        """Delete these letters.

        :raises StoreError: the store failed.
        """
        left = list(keys)
        while left:
            yield self._portion.attempt(partial(self._delete_first, left))
            left = left[self.size :]

    def _delete_first(self, keys: Sequence[LetterKey], size: int) -> int:
        delete_closed = self._store.deleting.delete_closed
        deleted, self._act = delete_closed(keys[:size], self._lease, self._act)
        return deleted


class Mover:
    """Moves letters into the archive, one segment after the other."""

    size = MAX_LETTERS

    def __init__(self, archiver: Archiver) -> None:
        self._archiver = archiver

    def finish(self) -> Iterator[int]:
        """End the segments that another process has begun: the letters of those that it has committed are
        deleted.

        :raises ArchiveError: the archive failed.
        :raises StoreError: the store failed.
        """
        for archived in self._archiver.finish():
            yield archived.deleted

    def remove(self, keys: Sequence[LetterKey]) -> Iterator[int]:
        """Move these letters. Letters that are too large together get several segments.

        :raises ArchiveError: the archive failed; the letters that are not in it stay in the store.
        :raises StoreError: the store failed.
        """
        while archived := self._archiver.archive_unchanged(keys):
            yield archived.deleted
