"""The archive: closed letters move from the store into it, one segment after the other, and back. Letters are
removed from segments.

The store has a row for each segment before its file is written: as a leftover. The file is read back and
compared. Then one transaction lets the segment count and deletes its letters. So a process may be killed at
any step: a leftover does not count, and the next run deletes it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from celery_dlq.archive.bucket import Bucket
from celery_dlq.archive.reading import (
    Exported,
    Finding,
    Restoration,
    Search,
    Verified,
    Wanted,
    export,
    need_pyarrow,
    portions,
    problem_of,
    read_segment,
)
from celery_dlq.archive.segment import (
    FOLDER,
    MAX_LETTERS,
    Line,
    Packed,
    facts_of,
    letter_key,
    pack,
    segment_key,
    segment_of,
    time_of,
)
from celery_dlq.errors import ArchiveDamaged, ArchiveFileMissing
from celery_dlq.store.base import Filter, Lease, LetterKey, OngoingAct, Portion, Segment, pages

if TYPE_CHECKING:
    from celery_dlq.store import Store
    from celery_dlq.store.archiving import Archiving

T = TypeVar("T")

#: Letters that are read from the store together. Each may have a large message.
_READ_TOGETHER = 500

#: Letters that are listed together.
_LISTED_TOGETHER = 1_000


class Archiver:
    """Works on the archive under one lease, which the caller prolongs.

    Each method raises :class:`~celery_dlq.errors.ArchiveError` if the archive fails, and
    :class:`~celery_dlq.errors.StoreError` if the store fails or the lease was lost. Letters that are not in
    the archive stay in the store.

    :param act: the act to which the audit adds the moved letters.
    """

    def __init__(self, bucket: Bucket, store: Archiving, lease: Lease, act: OngoingAct) -> None:
        self._bucket, self._store, self._lease, self._act = bucket, store, lease, act
        self._portion = Portion(MAX_LETTERS)

    def archive(self, keys: Iterable[LetterKey]) -> Iterator[int]:
        """Move the letters that are closed as they were into segments. Yields, after each segment, how many
        letters have left the store."""
        self.clean()
        for some in chunks(keys, MAX_LETTERS):
            left = some
            while left:
                moved, left = self._portion.attempt(partial(self._archive_first, left))
                yield moved

    def clean(self) -> None:
        """Delete the files of segments that do not count."""
        leftovers = self._store.leftovers(self._lease)
        if leftovers:
            check_place(self._bucket, self._store.newest())
        for segment_id in leftovers:
            self._bucket.delete(segment_key(segment_id))
            self._store.drop(segment_id)

    def rewrite(self, segment: Segment, is_removed: Callable[[Line], bool]) -> Segment | None:
        """Replace a segment by one without some of its letters. Returns the new segment; None if no letter is
        left."""
        kept = (line for line in read_segment(self._bucket, segment) if not is_removed(line))
        packed = pack(kept, sys.maxsize)
        after = self._put(packed, segment) if packed else None
        self._store.replace(segment, after, self._lease)
        self.clean()
        return after

    def _archive_first(
        self, keys: Sequence[LetterKey], size: int
    ) -> tuple[int, Sequence[LetterKey]]:
        """Move the first of these letters into a segment. Returns how many have left the store, and the keys
        after those that were read."""
        tried, wanted = keys[:size], {*keys[:size]}
        packed = pack(line for line in self._lines(tried) if letter_key(line) in wanted)
        if packed is None:
            return 0, keys[size:]
        made = self._put(packed)
        moved, self._act = self._store.commit(made, packed.keys, self._lease, self._act)
        return moved, keys[keys.index(packed.keys[-1]) + 1 :]

    def _put(self, packed: Packed, place: Segment | None = None) -> Segment:
        """A new segment with its file, as a leftover."""
        check_place(self._bucket, self._store.newest())
        made = self._store.begin(packed.facts, self._lease, place)
        key = segment_key(made.id)
        self._bucket.put(key, packed.data)
        if self._bucket.read(key) != packed.data:
            raise ArchiveDamaged(
                f"The archive returned other bytes for {key} than were put there. Check the place of the "
                "archive, then run: celery -A <app> dlq archive verify"
            )
        return made

    def _lines(self, keys: Sequence[LetterKey]) -> Iterator[Line]:
        for some in chunks((key.task_id for key in keys), _READ_TOGETHER):
            yield from self._store.read(some)


def check_place(bucket: Bucket, newest: str) -> None:
    """Check that the place has the file of the newest segment. If a disk is not mounted, its mount point is
    an empty directory, and letters that are written there are hidden once the disk is mounted.

    :param newest: the id of that segment; empty if there is none.
    :raises ArchiveError: the archive failed, or does not have it.
    """
    if newest and not bucket.has(segment_key(newest)):
        raise ArchiveFileMissing(
            f"The place of the archive does not have {segment_key(newest)}, which was archived last. "
            "Mount its disk, copy the earlier files of the archive there, or set dlq_archive_url back. "
            "Letters that are not in the archive stay in the store."
        )


def chunks(items: Iterable[T], size: int) -> Iterator[Sequence[T]]:
    """``items`` in lists of at most ``size``."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk


class Archive:
    """The archive of a dead-letter queue.

    All methods raise :class:`~celery_dlq.errors.ArchiveError` if the place of the archive fails, and
    :class:`~celery_dlq.errors.StoreError` if the store fails.

    :param store: returns the store.
    """

    def __init__(self, bucket: Bucket, store: Callable[[], Store]) -> None:
        #: The place of its files.
        self.bucket = bucket
        self._store = store

    def archiver(self, lease: Lease, *, who: str, detail: Mapping[str, object]) -> Archiver:
        """Moves letters into the archive while ``lease`` is held; audited as one act.

        :param who: the name in the audit.
        :param detail: the subject of the act, for the audit.
        """
        store = self._store()
        act = OngoingAct(who=who, act="archive", detail=detail, at=store.now())
        return Archiver(self.bucket, store.archiving, lease, act)

    def move(self, wanted: Filter, lease: Lease, *, who: str) -> int:
        """Move the closed letters of ``wanted`` into the archive while ``lease`` is held; audited. Returns
        how many. Letters that were moved before an error are in the archive.

        :raises LeaseLost: another process has taken the lease.
        """
        archiver = self.archiver(lease, who=who, detail={"filter": wanted.to_dict()})
        return sum(archiver.archive(self._closed(wanted)))

    def segments(self) -> list[Segment]:
        """The segments that count, in the order in which they were archived."""
        return [one for one in self._store().archiving.segments() if one.counts]

    def find(self, wanted: Wanted) -> Search:
        """The wanted letters, those that were archived last first. Secrets in them are not hidden."""
        return Search(self.bucket, self.segments(), wanted)

    def opened(self, line: Line) -> Line:
        """The line, with its contents decrypted.

        :raises ContentsSealed: they cannot be.
        """
        return self._store().archiving.opened(line)

    def unknown_files(self) -> list[str]:
        """The keys of files that no row of the store names."""
        # In this order: the row of a segment is there before its file.
        files = self.bucket.list(FOLDER)
        known = {one.id for one in self._store().archiving.segments()}
        return [key for key in files if segment_of(key) not in known]

    def adopt(self) -> list[str]:
        """Let the files count that the store has no row for: of another store, or of this one before it was
        restored from a backup. Returns the ids of these segments. Each line is read. If a file cannot be
        read, those before it count."""
        adopted = []
        for key in self.unknown_files():
            segment_id, made_at = segment_of(key), time_of(key)
            if segment_id is None or made_at is None or key != segment_key(segment_id):
                continue  # not a segment, or a part of one
            facts = facts_of(self.bucket.read(key), key)
            if facts is not None:
                self._store().archiving.adopt(segment_id, facts, made_at)
                adopted.append(segment_id)
        return adopted

    def verify(self, *, who: str) -> Verified:
        """Check that the file of each segment exists and is the one that was put; audited. Changes nothing in
        the archive.

        :param who: the name in the audit.
        """
        checked = [(one, problem_of(self.bucket, one)) for one in self.segments()]
        whole = [one for one, problem in checked if problem is None]
        problems = (problem for _, problem in checked if problem is not None)
        findings = (*problems, *map(Finding.unknown, self.unknown_files()))
        found = Verified(
            segments=len(whole), letters=sum(one.letters for one in whole),
            size=sum(one.size for one in whole), findings=findings,
        )  # fmt: skip
        self._store().reports.note_check(
            who=who, segments=found.segments, letters=found.letters, size=found.size,
            damaged=found.damaged, harmless=len(findings) - found.damaged,
        )  # fmt: skip
        return found

    def restore(self, search: Search, *, who: str, reopen: bool = False) -> Restoration:
        """Bring the letters that :meth:`find` has found back into the store. The archive keeps them, and a
        second run changes nothing. Letters that came back before an error stay.

        :param who: the name in the audit.
        :param reopen: whether they can be redriven afterwards; otherwise they come back closed.
        """
        store, restored, living = self._store(), list[str](), list[str]()
        for origin, of_segment in groupby(search, key=lambda found: found.segment.id):
            for some in portions(of_segment):
                result = store.archiving.restore(
                    [found.line for found in some],
                    who=who, reopen=reopen, origin=origin, now=store.now(),
                )  # fmt: skip
                restored += result.restored
                living += result.living
        return Restoration(
            restored=tuple(restored), living=tuple(living),
            missing=tuple(sorted(search.wanted.ids.difference(restored, living))),
            findings=tuple(search.findings),
        )  # fmt: skip

    def export(self, target: Path, wanted: Wanted, *, contents: bool = False) -> Exported:
        """Write the wanted letters to a Parquet file.

        :param contents: whether to include messages, arguments, tracebacks and the messages of exceptions,
            with the secrets in them.
        :raises MissingExtra: ``pyarrow`` is not installed.
        """
        need_pyarrow()
        return export(self.find(wanted), target, opened=self.opened if contents else None)

    def _closed(self, wanted: Filter) -> Iterator[LetterKey]:
        """The closed letters that are there now, the newest first."""
        for page in pages(self._store().letters.find, wanted, _LISTED_TOGETHER):
            for one in page.letters:
                if one.closed_at is not None:
                    yield LetterKey(
                        task_id=one.task_id, last_failed_at=one.last_failed_at,
                        closed_at=one.closed_at,
                    )  # fmt: skip
