"""The part of the Python API for the archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from celery_dlq.api.parts import AppParts
from celery_dlq.errors import SettingsError, page
from celery_dlq.store.base import OngoingAct

if TYPE_CHECKING:
    from celery_dlq.archive.archiving import Archiver
    from celery_dlq.archive.bucket import Bucket
    from celery_dlq.archive.chain import Chains
    from celery_dlq.archive.export import Exported
    from celery_dlq.archive.reading import Restoration, Search, Wanted
    from celery_dlq.archive.verify import Verified
    from celery_dlq.store import Store
    from celery_dlq.store.base import Filter, Lease

#: Letters that are listed together.
_LISTED_TOGETHER = 1_000


class Archive:
    """The archive of a dead-letter queue.

    All methods raise :class:`~celery_dlq.errors.ArchiveError` if the place of the archive fails.

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
        from celery_dlq.archive.archiving import Archiver

        store = self._store()
        act = OngoingAct(who=who, act="archive", detail=detail, at=store.now())
        return Archiver(self.bucket, store.archiving, lease, act, store.now)

    def move(self, wanted: Filter, lease: Lease, *, who: str) -> int:
        """Move the closed letters of ``wanted`` into the archive while ``lease`` is held; audited. Returns
        how many, with those that another process has moved, and not yet deleted.

        :raises LeaseLost: another process has taken the lease.
        :raises StoreError: the store failed. Letters that were moved before that are in the archive.
        """
        from celery_dlq.archive.archiving import chunks
        from celery_dlq.archive.segment import MAX_LETTERS

        store = self._store()
        archiver = self.archiver(lease, who=who, detail={"filter": wanted.to_dict()})
        moved = sum(archived.deleted for archived in archiver.finish())
        for ids in chunks(_ids(store, wanted), MAX_LETTERS):
            while archived := archiver.archive(ids):
                moved += archived.deleted
        return moved

    def chains(self) -> Chains:
        """The manifests of all segments."""
        from celery_dlq.archive.chain import read_chains

        return read_chains(self.bucket)

    def find(self, wanted: Wanted) -> Search:
        """The wanted letters, those that were archived last first. Secrets in them are not hidden."""
        from celery_dlq.archive.reading import Search

        return Search(self.bucket, self.chains(), wanted)

    def verify(self, *, who: str) -> Verified:
        """Check every byte of all files, and whether all segments of this store are there; audited. Changes
        nothing in the archive.

        :param who: the name in the audit.
        :raises StoreError: the store failed.
        """
        from celery_dlq.archive.verify import verify

        store = self._store()
        # Asked first: segments that are committed later are not missing.
        found = verify(self.bucket, store.archiving.committed())
        store.reports.note_check(
            who=who, segments=found.segments, letters=found.letters, size=found.size,
            damaged=found.damaged, harmless=len(found.findings) - found.damaged,
        )  # fmt: skip
        return found

    def restore(self, search: Search, *, who: str, reopen: bool = False) -> Restoration:
        """Bring the letters that :meth:`find` has found back into the store. The archive keeps them, and a
        second run changes nothing.

        :param who: the name in the audit.
        :param reopen: whether they can be redriven afterwards; otherwise they come back closed.
        :raises UnknownSegment: the archive does not have the wanted segment.
        :raises StoreError: the store failed. Letters that came back before that stay.
        """
        from celery_dlq.archive.reading import restore

        store = self._store()
        return restore(search, store.archiving, who=who, reopen=reopen, now=store.now())

    def export(self, target: Path, wanted: Wanted, *, contents: bool = False) -> Exported:
        """Write the wanted letters to a Parquet file.

        :param contents: whether to include messages, arguments, tracebacks and the messages of exceptions,
            with the secrets in them.
        :raises MissingExtra: ``pyarrow`` is not installed.
        """
        from celery_dlq.archive.export import export, need_pyarrow

        need_pyarrow()
        return export(self.find(wanted), target, contents=contents)


class ArchiveAPI(AppParts):
    """The part of a dead-letter queue for its archive."""

    @cached_property
    def archive(self) -> Archive:
        """The archive at ``dlq_archive_url``. Does not connect.

        :raises SettingsError: the setting is missing or not valid.
        :raises MissingExtra: a package that the place needs is not installed.
        """
        url = self.settings.archive_url
        if url is None:
            raise SettingsError(
                "This app has no archive, because dlq_archive_url is not set. Set it to a place such as "
                f"s3://bucket/folder or file:///folder. See {page('settings')}."
            )
        from celery_dlq.archive.bucket import open_bucket

        return Archive(open_bucket(url), lambda: self.store)


def _ids(store: Store, wanted: Filter) -> Iterator[str]:
    """The task ids of the letters that are there now, the newest first."""
    after: str | None = None
    while True:
        page = store.letters.find(wanted, limit=_LISTED_TOGETHER, after=after)
        yield from (one.task_id for one in page.letters)
        after = page.next
        if after is None:
            return
