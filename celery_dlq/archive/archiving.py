"""Moves closed letters from the store into the archive, one segment after the other.

A segment is put, read back and compared. Its manifest, which is put next, is the commit point: before it the
letters are in the store, after it they are in the archive, and only then they are deleted from the store. A
process may die between any two steps: :meth:`Archiver.finish` then ends what it had begun.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from celery_dlq.archive.bucket import Bucket
from celery_dlq.archive.files import (
    MANIFESTS,
    SEGMENTS,
    Manifest,
    StoredManifest,
    check_segment,
    make_manifest,
    manifest_key,
    part_of,
    put_manifest,
    put_segment,
    read_manifest,
    segment_key,
    segment_of,
)
from celery_dlq.archive.segment import Facts, Line, SegmentWriter, letter_key, read_lines
from celery_dlq.errors import ArchiveDamaged, ArchiveFileMissing
from celery_dlq.store.base import Lease, LetterKey, OngoingAct, Segment

if TYPE_CHECKING:
    from celery_dlq.store.archiving import Archiving

T = TypeVar("T")

#: Letters that are read from the store together. Each may have a large message.
_READ_TOGETHER = 100
#: Letters that are deleted in one transaction.
_DELETED_TOGETHER = 500


@dataclass(frozen=True, kw_only=True)
class Archived:
    """One segment that was archived."""

    manifest: Manifest
    #: Letters that were deleted from the store. Others of the segment have changed since they were read.
    deleted: int


class Archiver:
    """Moves letters into one place under one lease, which the caller prolongs.

    :param act: the act to which the audit adds the moved letters.
    :param now: the current time on the store's clock.
    """

    def __init__(
        self,
        bucket: Bucket,
        store: Archiving,
        lease: Lease,
        act: OngoingAct,
        now: Callable[[], datetime],
    ) -> None:
        self._bucket, self._store, self._lease, self._now = bucket, store, lease, now
        self._act = act

    def archive(self, task_ids: Iterable[str]) -> Archived | None:
        """Move the first of these letters into one segment, as many as it takes; the others stay. None if
        none of them is closed. Call :meth:`finish` first.

        :raises ArchiveError: the archive failed; letters that are not in it stay in the store, and
            :meth:`finish` continues.
        :raises StoreError: the store failed, or the lease was lost.
        """
        return self._archive(self._lines(task_ids))

    def archive_unchanged(self, keys: Sequence[LetterKey]) -> Archived | None:
        """Move the first of these letters that have not changed into one segment; see :meth:`archive`."""
        wanted = set(keys)
        lines = self._lines(key.task_id for key in keys)
        return self._archive(line for line in lines if letter_key(line) in wanted)

    def _archive(self, lines: Iterable[Line]) -> Archived | None:
        writer = SegmentWriter()
        for line in lines:
            if not writer.add(line):
                break
        if not writer.letters:
            return None
        stored = self.put(*writer.finish())
        return Archived(manifest=stored.manifest, deleted=self._delete_and_close(stored.manifest))

    def finish(self) -> list[Archived]:
        """End the segments that a process has begun and not ended. A segment without a manifest is
        abandoned, and its letters stay in the store. Returns the others.

        :raises ArchiveError: the archive failed, or has lost files of a segment that was committed. No
            letter of that segment was deleted.
        :raises StoreError: the store failed, or the lease was lost.
        """
        ended = [self._finish_one(segment) for segment in self._store.unfinished()]
        return [one for one in ended if one is not None]

    def segments_to_keep(self) -> frozenset[str]:
        """The ids of the segments that are in the archive, or that a process is making.

        :raises StoreError: the store failed.
        """
        begun = (one.id for one in self._store.unfinished() if not one.abandoned)
        return frozenset(begun).union(self._store.committed())

    def put(self, data: bytes, facts: Facts, *, replaces: str | None = None) -> StoredManifest:
        """Put a segment and its manifest, and commit it.

        :param replaces: the id of the segment that it replaces.
        :raises ArchiveError: the archive failed, or returned other bytes; the segment is not committed.
        :raises StoreError: the store failed, or the lease was lost.
        """
        segment = self._store.begin(self._lease, now=self._now())
        check_place(self._bucket, segment.previous_id)
        put_segment(self._bucket, segment_key(segment.id), data, facts)
        manifest = make_manifest(segment, facts, now=self._now(), replaces=replaces)
        stored = put_manifest(self._bucket, manifest)
        self._commit(stored)
        return stored

    def drop_replaced(self, manifest: Manifest) -> None:
        """Delete the file of the segment that a committed one replaces, and close the new one.

        :raises ArchiveError: the archive failed, or does not hold the new segment.
        :raises StoreError: the store failed, or the lease was lost.
        """
        check_segment(self._bucket, manifest)
        if manifest.replaces:
            self._bucket.delete(segment_key(manifest.replaces))
        self._store.close(manifest.segment, self._lease, deleted=0)

    def _finish_one(self, segment: Segment) -> Archived | None:
        if segment.abandoned:
            self._drop(segment)
            return None
        stored = (
            read_manifest(self._bucket, segment.id) if segment.committed else self._put_by(segment)
        )
        if stored is None:
            self._abandon(segment)
            return None
        if not segment.committed:
            self._commit(stored)
        if stored.manifest.replaces:
            # Its letters left the store long ago. Any that were restored since then must stay.
            self.drop_replaced(stored.manifest)
            return Archived(manifest=stored.manifest, deleted=0)
        return Archived(manifest=stored.manifest, deleted=self._delete_and_close(stored.manifest))

    def _put_by(self, segment: Segment) -> StoredManifest | None:
        """The manifest of a segment that is not committed; None if its files are not whole."""
        with contextlib.suppress(ArchiveFileMissing, ArchiveDamaged):
            stored = read_manifest(self._bucket, segment.id)
            check_segment(self._bucket, stored.manifest)
            return stored
        return None

    def _abandon(self, segment: Segment) -> None:
        check_place(self._bucket, segment.previous_id)
        # First in the store: from then on no process can commit it, however late it is, and its files can
        # be deleted.
        self._store.abandon(segment.id, self._lease)
        self._drop(segment)

    def _drop(self, segment: Segment) -> None:
        """Delete the files of an abandoned segment."""
        for key in [*self._bucket.list(MANIFESTS), *self._bucket.list(SEGMENTS)]:
            if segment.id in (segment_of(key), part_of(key)):
                self._bucket.delete(key)
        self._store.drop(segment.id, self._lease)

    def _commit(self, stored: StoredManifest) -> None:
        facts = stored.manifest.facts
        self._store.commit(
            stored.manifest.segment, self._lease,
            letters=facts.letters, size=facts.size, manifest_sha256=stored.sha256,
        )  # fmt: skip

    def _delete_and_close(self, manifest: Manifest) -> int:
        """Delete the letters that the archive holds, as it is read now, and close the segment."""
        data = check_segment(self._bucket, manifest)
        keys = map(letter_key, read_lines(data, manifest.key))
        deleted = sum(map(self._delete, chunks(keys, _DELETED_TOGETHER)))
        self._store.close(manifest.segment, self._lease, deleted=deleted)
        return deleted

    def _delete(self, keys: Sequence[LetterKey]) -> int:
        deleted, self._act = self._store.delete(keys, self._lease, self._act)
        return deleted

    def _lines(self, task_ids: Iterable[str]) -> Iterator[Line]:
        for some in chunks(dict.fromkeys(task_ids), _READ_TOGETHER):
            yield from self._store.read(some)


def check_place(bucket: Bucket, newest: str) -> None:
    """Check that the place has the manifest of the newest segment. If a disk is not mounted, its mount point
    is an empty directory, and letters that are written there are hidden once the disk is mounted.

    :param newest: the id of that segment; empty if there is none.
    :raises ArchiveError: the archive failed, or does not have it.
    """
    if newest:
        try:
            bucket.read(manifest_key(newest))
        except ArchiveFileMissing as error:
            raise ArchiveFileMissing(
                f"The place of the archive does not have {manifest_key(newest)}, which was archived last. "
                "Mount its disk, copy the earlier files of the archive there, or set dlq_archive_url back. "
                "Letters that are not in the archive stay in the store."
            ) from error


def chunks(items: Iterable[T], size: int) -> Iterator[Sequence[T]]:
    """``items`` in lists of at most ``size``."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
