"""The part of a store that the archive needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from celery_dlq.store.base import Lease, LetterKey, OngoingAct, Restored, Segment


class ArchivingRole(Protocol):
    """Keeps account of segments, makes lines of letters, and letters of lines.

    Methods that take a lease raise ``LeaseLost``, and change nothing, if another process has taken it. All
    raise :class:`~celery_dlq.errors.StoreError` if the store fails.
    """

    def begin(self, lease: Lease, *, now: datetime) -> Segment:
        """A new segment, the next of the chain."""

    def unfinished(self) -> Sequence[Segment]:
        """The segments that a process has to end, oldest first: those that are begun, committed or
        abandoned."""

    def read(self, task_ids: Sequence[str]) -> Iterable[Mapping[str, Any]]:
        """The lines of letters, in the order of the ids; without those that are gone or not closed."""

    def commit(
        self, segment_id: str, lease: Lease, *, letters: int, size: int, manifest_sha256: str
    ) -> None:
        """Note that the manifest of a segment that was begun is in the archive."""

    def delete(
        self, keys: Sequence[LetterKey], lease: Lease, act: OngoingAct
    ) -> tuple[int, OngoingAct]:
        """Delete those letters that are still closed and have the same times, and add them to the audit of
        ``act`` in the same transaction. Returns their number, and the act for the next letters."""

    def close(self, segment_id: str, lease: Lease, *, deleted: int) -> None:
        """Note that the letters of a committed segment are deleted."""

    def abandon(self, segment_id: str, lease: Lease) -> None:
        """Note that a segment that was begun will never be committed."""

    def drop(self, segment_id: str, lease: Lease) -> None:
        """Note that the files of an abandoned segment are deleted."""

    def committed(self) -> Mapping[str, str]:
        """The segments whose manifests are in the archive, each with the SHA-256 of its manifest."""

    def restore(
        self,
        lines: Sequence[Mapping[str, Any]],
        *,
        who: str,
        reopen: bool,
        origin: str,
        now: datetime,
    ) -> Restored:
        """Make letters of lines. A letter that the store has stays as it is."""
