"""Looks for the letters of a person, and erases them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from celery_dlq.archive.archiving import Archiver, chunks
from celery_dlq.archive.bucket import Bucket
from celery_dlq.archive.reading import Wanted
from celery_dlq.archive.rewrite import Holders, Rewritten, forget, holders
from celery_dlq.erasure.condition import Condition
from celery_dlq.erasure.matching import Matcher
from celery_dlq.erasure.spooled import SpooledLetters, spooled
from celery_dlq.model.states import State
from celery_dlq.store.base import ErasedSegment, Filter, Lease, OngoingAct
from celery_dlq.store.rows.audit import by_filter
from celery_dlq.store.rows.rows import stored_id

if TYPE_CHECKING:
    from celery_dlq.store import Store
    from celery_dlq.store.archive.lines import Line

#: The fewest characters of a value that is searched in notes and in the audit: shorter ones are part of too
#: many other texts.
SHORTEST_TEXT = 4

#: Letters that are read together, and those that are deleted in one transaction.
_READ_TOGETHER, _DELETED_TOGETHER = 200, 500

_STORED = frozenset(State) - {State.PARKED}


@dataclass(frozen=True, kw_only=True)
class Meant:
    """Which letters are to be erased: those with one of the ids, or those that meet all conditions."""

    ids: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()

    @property
    def detail(self) -> dict[str, object]:
        """The detail of the act for the audit, without the values."""
        if len(self.ids) == 1:
            return {"letter": stored_id(self.ids[0])}
        if self.ids:
            return by_filter(Filter(ids=self.ids))
        return {"where": [one.place for one in self.conditions]}

    @property
    def texts(self) -> tuple[str, ...]:
        """The values that are long enough to be searched in other texts."""
        return tuple(one.text for one in self.conditions if len(one.text) >= SHORTEST_TEXT)

    @property
    def short(self) -> tuple[str, ...]:
        """The places of the other values."""
        return tuple(one.place for one in self.conditions if len(one.text) < SHORTEST_TEXT)


@dataclass(frozen=True, kw_only=True)
class ArchivePart:
    """The archive of a store."""

    bucket: Bucket
    #: Makes an archiver that works while a lease is held, for the person in the audit.
    archiver: Callable[[Lease, str], Archiver]


@dataclass(frozen=True, kw_only=True)
class Found:
    """Where such letters are."""

    #: In the store, by state.
    stored: Mapping[State, int]
    #: In the archive; None without one.
    archived: Holders | None
    #: Task ids of retries that wait in the store.
    parked: tuple[str, ...]
    #: In the spool of this machine.
    spooled: tuple[SpooledLetters, ...]
    #: Letters that could not be read, by task id, each with the reason.
    unread: Mapping[str, str]
    #: Notes and rows of the audit that mention the values.
    mentions: int

    @property
    def letters(self) -> int:
        """Letters that would be erased."""
        return sum(self.stored.values()) + sum(self.archived.own.values() if self.archived else ())

    @property
    def is_all(self) -> bool:
        """Whether nothing would be left elsewhere."""
        in_archive = self.archived and (self.archived.others or self.archived.unread)
        return not (self.parked or self.spooled or self.unread or in_archive)


@dataclass(frozen=True, kw_only=True)
class Erased:
    """The result of an erasure."""

    #: Letters that were removed from the store, and from the archive.
    stored: int
    archived: int
    #: Segments that were replaced, each with the one that replaces it.
    segments: Mapping[str, str]
    #: Notes and rows of the audit that were changed.
    mentions: int
    #: Task ids of letters that a redrive is sending now.
    left: tuple[str, ...]


class Erasure:
    """Erases letters.

    :param archive: None if the store has none.
    :param spool: the directory of the spool on this machine.
    """

    def __init__(
        self,
        store: Store,
        meant: Meant,
        matcher: Matcher,
        *,
        archive: ArchivePart | None,
        spool: Path,
    ) -> None:
        self._store, self._meant, self._matcher = store, meant, matcher
        self._archive, self._spool = archive, spool

    def look(self) -> Found:
        """Where such letters are. Reads every message, unless task ids are given. Changes nothing.

        :raises OSError: the spool cannot be read.
        :raises ArchiveError: the archive failed, or a segment is damaged.
        :raises StoreError: the store failed.
        """
        stored = Counter(State(line["letter"]["state"]) for line in self._stored())
        return Found(
            stored=stored,
            archived=None if self._archive is None else self._look_into(self._archive),
            parked=tuple(self._parked()),
            spooled=tuple(spooled(self._spool, self._matcher)),
            unread=dict(self._matcher.unread),
            mentions=self._store.erasing.mentions(self._meant.texts),
        )

    def carry_out(self, lease: Lease, *, who: str, why: str) -> Erased:
        """Erase them while ``lease`` is held. If the process is killed, a second run ends the work. The audit
        has one row, which is written first and names neither the values nor the letters' contents.

        :param lease: the one under which letters are removed; it keeps them from being archived meanwhile.
        :raises ArchiveError: the archive failed, or a segment is damaged.
        :raises StoreError: the store failed, or the lease was lost.
        """
        detail, now = self._meant.detail, self._store.now()
        act = OngoingAct(who=who, act="forget", why=why, detail=detail, at=now)
        act = self._store.erasing.begin(act, lease)
        # First the archive: a restore that runs at the same time brings letters into the store.
        rewritten = self._erase_archived(lease, act)
        deleted, left = self._erase_stored(lease, act)
        return Erased(
            stored=deleted,
            archived=sum(len(one.removed) for one in rewritten),
            segments={one.before: one.after.segment for one in rewritten},
            mentions=self._store.erasing.replace_texts(self._meant.texts),
            left=left,
        )

    def _erase_archived(self, lease: Lease, act: OngoingAct) -> tuple[Rewritten, ...]:
        if self._archive is None:
            return ()

        def note(one: Rewritten) -> None:
            nonlocal act
            removed = ErasedSegment(
                before=one.before, after=one.after.segment,
                task_ids=one.removed, fingerprints=one.fingerprints,
            )  # fmt: skip
            act = self._store.erasing.note_archived(removed, act)

        bucket, archiver = self._archive.bucket, self._archive.archiver(lease, act.who)
        return forget(bucket, archiver, self._wanted(), chain=self._chain(), on_rewritten=note)

    def _erase_stored(self, lease: Lease, act: OngoingAct) -> tuple[int, tuple[str, ...]]:
        deleted, left = 0, list[str]()
        ids = (line["letter"]["task_id"] for line in self._stored())
        for some in chunks(ids, _DELETED_TOGETHER):
            gone = self._store.erasing.delete(some, lease, act)
            deleted += len(gone)
            left += sorted({*some} - {*gone})
        return deleted, tuple(left)

    def _look_into(self, archive: ArchivePart) -> Holders:
        committed = self._store.archiving.committed()
        return holders(archive.bucket, self._wanted(), chain=self._chain(), committed=committed)

    def _wanted(self) -> Wanted:
        ids = frozenset(map(stored_id, self._meant.ids))
        return Wanted(ids=ids, where=self._matcher.is_line)

    def _chain(self) -> str:
        return self._store.archiving.totals().chain

    def _stored(self) -> Iterator[Line]:
        for ids in self._pages():
            lines = self._store.archiving.read(ids, _STORED)
            yield from (line for line in lines if self._matcher.is_line(line))

    def _pages(self) -> Iterator[Sequence[str]]:
        """The task ids of the letters that may be meant."""
        if self._meant.ids:
            yield from chunks(map(stored_id, self._meant.ids), _READ_TOGETHER)
            return
        every, after = Filter(states=_STORED), None
        while True:
            page = self._store.letters.find(every, limit=_READ_TOGETHER, after=after)
            yield [one.task_id for one in page.letters]
            after = page.next
            if after is None:
                return

    def _parked(self) -> Iterator[str]:
        last = 0
        while some := self._store.erasing.parked(last, limit=_READ_TOGETHER):
            yield from (letter.task_id for _, letter in some if self._matcher.is_letter(letter))
            last = some[-1][0]
