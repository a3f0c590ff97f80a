"""The part of the Python API for erasing the letters of a person."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from celery_dlq.api.archive import ArchiveAPI
from celery_dlq.errors import SettingsError, page

if TYPE_CHECKING:
    from celery_dlq.erasure.engine import ArchivePart, Erasure


class ErasureAPI(ArchiveAPI):
    """The method of a dead-letter queue for erasing letters."""

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
        from celery_dlq.erasure.condition import Condition
        from celery_dlq.erasure.engine import Erasure, Meant
        from celery_dlq.erasure.matching import Matcher
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
            archive=self._archive_to_erase(),
            spool=Path(self.settings.spool_dir),
        )

    def _archive_to_erase(self) -> ArchivePart | None:
        from celery_dlq.erasure.engine import ArchivePart

        if self.settings.archive_url is not None:
            # Its own act in the audit moves the letters of segments that another process has begun.
            return ArchivePart(
                bucket=self.archive.bucket,
                archiver=lambda lease, who: self.archive.archiver(lease, who=who, detail={}),
            )
        if self.store.archiving.totals().segments:
            raise SettingsError(
                "This store has letters in an archive, and dlq_archive_url is not set. Set it, so that they "
                f"can be erased there, too. See {page('settings')}."
            )
        return None
