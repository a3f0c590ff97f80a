"""The part of the Python API for retention and deletion."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from celery_dlq.api.archive import ArchiveAPI
from celery_dlq.api.deletion import check_reason, deletable
from celery_dlq.store.filter import Filter

if TYPE_CHECKING:
    from celery_dlq.upkeep.expiring import RetentionEngine


class RetentionAPI(ArchiveAPI):
    """The methods of a dead-letter queue for retention and deletion."""

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
