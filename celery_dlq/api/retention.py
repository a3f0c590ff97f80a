"""The part of the Python API for letters that are done with: they are kept, archived, deleted, or erased for
a person.

Closed letters are deleted by default, open ones only on request and with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from celery_dlq.api.parts import AppParts
from celery_dlq.errors import DeletionError, OpenLetters, SettingsError, page
from celery_dlq.model.states import CLOSED_STATES, DELETABLE_STATES, State
from celery_dlq.store.base import LetterKey, OngoingAct, pages
from celery_dlq.store.filter import Filter

if TYPE_CHECKING:
    from celery_dlq.api.erasure import Erasure
    from celery_dlq.archive.archiving import Archiver
    from celery_dlq.archive.bucket import Bucket
    from celery_dlq.archive.export import Exported
    from celery_dlq.archive.reading import Restoration, Search, Verified, Wanted
    from celery_dlq.store import Store
    from celery_dlq.store.base import Lease, Segment
    from celery_dlq.upkeep.expiring import RetentionEngine


def deletable(wanted: Filter, *, is_open: bool) -> Filter:
    """``wanted`` with the states of the letters to delete.

    :param is_open: whether open letters were asked for: dead ones, if ``wanted`` names no state.
    :raises OpenLetters: it names open states, but open letters were not asked for.
    :raises DeletionError: it names closed states, but open letters were asked for; or it names a state in
        which no letter can be deleted.
    """
    if others := wanted.states - DELETABLE_STATES:
        raise DeletionError(
            f"Letters that are {_named(others)} cannot be deleted; only closed, dead or redriven ones can."
        )
    if is_open:
        if closed := wanted.states & CLOSED_STATES:
            raise DeletionError(
                f"Letters that are {_named(closed)} are closed; delete them apart from open ones."
            )
        return replace(wanted, states=wanted.states or frozenset({State.DEAD}))
    if still_open := wanted.states - CLOSED_STATES:
        raise OpenLetters(
            f"Letters that are {_named(still_open)} are open; delete them apart from closed ones, and with a "
            "reason, because their messages are lost."
        )
    return replace(wanted, states=wanted.states or CLOSED_STATES)


def check_reason(why: str, *, is_open: bool) -> None:
    """Check that there is a reason if open letters are to be deleted.

    :raises OpenLetters: the reason is missing.
    """
    if is_open and not why.strip():
        raise OpenLetters("Deleting open letters needs a reason, because their messages are lost.")


def _named(states: Iterable[State]) -> str:
    return " and ".join(sorted(states))


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
        return Archiver(self.bucket, store.archiving, lease, act)

    def move(self, wanted: Filter, lease: Lease, *, who: str) -> int:
        """Move the closed letters of ``wanted`` into the archive while ``lease`` is held; audited. Returns
        how many.

        :raises LeaseLost: another process has taken the lease.
        :raises StoreError: the store failed. Letters that were moved before that are in the archive.
        """
        archiver = self.archiver(lease, who=who, detail={"filter": wanted.to_dict()})
        return sum(archiver.archive(_closed(self._store(), wanted)))

    def segments(self) -> list[Segment]:
        """The segments that count, in the order in which they were archived."""
        return [one for one in self._store().archiving.segments() if one.counts]

    def find(self, wanted: Wanted) -> Search:
        """The wanted letters, those that were archived last first. Secrets in them are not hidden."""
        from celery_dlq.archive.reading import Search

        return Search(self.bucket, self.segments(), wanted)

    def adopt(self) -> list[str]:
        """Let the files count that the store has no row for; returns the ids of these segments.

        :raises StoreError: the store failed.
        """
        from celery_dlq.archive.archiving import adopt

        return adopt(self.bucket, self._store().archiving)

    def verify(self, *, who: str) -> Verified:
        """Check that the file of each segment exists and is the one that was put; audited. Changes nothing in
        the archive.

        :param who: the name in the audit.
        :raises StoreError: the store failed.
        """
        from celery_dlq.archive.archiving import unknown_files
        from celery_dlq.archive.reading import verify

        store = self._store()
        found = verify(self.bucket, self.segments(), unknown_files(self.bucket, store.archiving))
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


class RetentionAPI(AppParts):
    """The methods of a dead-letter queue for letters that are done with."""

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

    @cached_property
    def retention(self) -> RetentionEngine:
        """Deletes what was kept as long as ``dlq_retention`` says, or moves it into the archive.

        :raises SettingsError: a ``dlq_*`` setting is not valid.
        """
        from celery_dlq.upkeep.expiring import RetentionEngine
        from celery_dlq.upkeep.retention import Retention

        retention: Retention = self.settings.retention or Retention()
        # Opened only when letters are moved: history is deleted though the archive cannot be opened.
        archiver = (
            None
            if self.settings.archive_url is None
            else lambda lease, who, detail: self.archive.archiver(lease, who=who, detail=detail)
        )
        return RetentionEngine(lambda: self.store, retention, archiver=archiver)

    def delete(self, wanted: Filter, *, who: str, why: str = "", is_open: bool = False) -> int:
        """Delete the closed letters of ``wanted`` for ever, with their messages and attempts; returns how
        many. The audit records it. Counts of arrivals stay.

        :param who: the name in the audit.
        :param why: the reason in the audit; open letters need one.
        :param is_open: delete open letters instead of closed ones: dead ones, unless ``wanted`` names states.
            Their messages are lost.
        :raises OpenLetters: open letters would be deleted without ``is_open`` or without a reason.
        :raises DeletionError: letters in a state that ``wanted`` names cannot be deleted, or not in this way.
        :raises StoreError: the store failed. Letters that were deleted before that stay deleted.
        """
        check_reason(why, is_open=is_open)
        taken = deletable(wanted, is_open=is_open)
        return self.store.deleting.delete(taken, who=who, why=why, now=self.store.now())

    def erasure(self, *, ids: Sequence[str] = (), where: Sequence[str] = ()) -> Erasure:
        """An erasure of the letters with one of these task ids, or of those that meet all conditions.

        :param ids: whole task ids.
        :param where: conditions such as ``args.user_id=7``. Import the app's tasks first, because their
            parameters say which positional argument has that name.
        :raises ValueError: neither is given, or both are.
        :raises RepairError: a condition is wrong.
        :raises SettingsError: the store has archived letters, and ``dlq_archive_url`` is not set.
        :raises StoreError: the store failed.
        """
        from celery_dlq.api.erasure import Condition, Erasure, Matcher, Meant
        from celery_dlq.store.rows.rows import stored_id

        if bool(ids) == bool(where):
            raise ValueError("give either ids or where")
        named = tuple(dict.fromkeys(map(stored_id, ids)))
        meant = Meant(ids=named, conditions=tuple(map(Condition.parse, where)))
        matcher = Matcher.for_app(self.app, meant.ids, meant.conditions)
        return Erasure(
            self.store,
            meant,
            matcher,
            bucket=self._bucket_to_erase(),
            spool=Path(self.settings.spool_dir),
        )

    def _bucket_to_erase(self) -> Bucket | None:
        if self.settings.archive_url is not None:
            return self.archive.bucket
        if self.store.archiving.newest():
            raise SettingsError(
                "This store has letters in an archive, and dlq_archive_url is not set. Set it, so that they "
                f"can be erased there, too. See {page('settings')}."
            )
        return None


def _closed(store: Store, wanted: Filter) -> Iterator[LetterKey]:
    """The closed letters that are there now, the newest first."""
    for found in pages(store.letters.find, wanted, _LISTED_TOGETHER):
        for one in found.letters:
            if one.closed_at is not None:
                yield LetterKey(
                    task_id=one.task_id, last_failed_at=one.last_failed_at, closed_at=one.closed_at
                )
