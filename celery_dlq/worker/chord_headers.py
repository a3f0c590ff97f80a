"""What a result backend without counts of chords needs, so that a redrive can complete one that failed:
which members it had. No message says so but that of the task that asks for their results."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from celery.result import GroupResult, result_from_tuple
from celery.utils.log import get_logger

from celery_dlq.headers import chord_key

logger = get_logger(__name__)


def keep_chord_headers(app: Any) -> None:
    """Have the members of each chord of ``app`` kept in its result backend when the chord fails."""
    unlock = app.tasks.get("celery.chord_unlock")
    # Celery calls the class with the members; somebody may have put a task of their own in its place.
    if unlock is not None and "GroupResult" in inspect.signature(unlock.run).parameters:
        unlock.run = functools.partial(unlock.run, GroupResult=_Header)


class _Header(GroupResult):  # type: ignore[misc]
    """The members of a chord, which are kept where one of them failed."""

    def join(self, *args: Any, **kwargs: Any) -> Any:
        """The members' results.

        :raises Exception: of a member that failed.
        """
        return self._kept_on_failure(super().join, *args, **kwargs)

    def join_native(self, *args: Any, **kwargs: Any) -> Any:
        """The same, on a backend that has its own way."""
        return self._kept_on_failure(super().join_native, *args, **kwargs)

    def _kept_on_failure(self, join: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return join(*args, **kwargs)
        except Exception:
            self._keep()
            raise

    def _keep(self) -> None:
        backend, key = self.app.backend, chord_key(self.id)
        try:
            backend.delete_group(key)  # a database takes no second one
            # Others of the same: these have failed, and raise it wherever they are put.
            backend.save_group(key, result_from_tuple(self.as_tuple(), app=self.app))
        except Exception:
            logger.exception("chord %s cannot be completed by a redrive: not kept", self.id)
