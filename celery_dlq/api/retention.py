"""The part of the Python API for retention."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from celery_dlq.api.archive import ArchiveAPI

if TYPE_CHECKING:
    from celery_dlq.upkeep.retention.engine import RetentionEngine


class RetentionAPI(ArchiveAPI):
    """The methods of a dead-letter queue for retention."""

    @cached_property
    def retention(self) -> RetentionEngine:
        """Deletes what was kept as long as ``dlq_retention`` says, or moves it into the archive.

        :raises SettingsError: a ``dlq_*`` setting is not valid.
        """
        from celery_dlq.upkeep.retention.definition import Retention
        from celery_dlq.upkeep.retention.engine import WHO, RetentionEngine

        given = self.settings.retention
        retention = given if isinstance(given, Retention) else Retention()
        # Opened only when letters are moved: history is deleted though the archive cannot be opened.
        archiver = (
            None
            if self.settings.archive_url is None
            else lambda lease, detail: self.archive.archiver(lease, who=WHO, detail=detail)
        )
        return RetentionEngine(lambda: self.store, retention, archiver=archiver)
