"""The part of the Python API for retention."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from celery_dlq.api.parts import AppParts

if TYPE_CHECKING:
    from celery_dlq.upkeep.retention.engine import RetentionEngine


class RetentionAPI(AppParts):
    """The methods of a dead-letter queue for retention."""

    @cached_property
    def retention(self) -> RetentionEngine:
        """Deletes what was kept as long as ``dlq_retention`` says.

        :raises SettingsError: a ``dlq_*`` setting is not valid.
        """
        from celery_dlq.upkeep.retention.definition import Retention
        from celery_dlq.upkeep.retention.engine import RetentionEngine

        given = self.settings.retention
        retention = given if isinstance(given, Retention) else Retention()
        return RetentionEngine(lambda: self.store, retention)
