"""Chords on a result backend that does not count members: it does not keep which members a chord had.

On such a backend (databases, the file system) the task ``celery.chord_unlock`` polls the members. Only its
message names them, and it is gone once the chord has failed (celery 5.7.0, app/builtins.py, lines 108 to 122;
the same since 5.5). So a redrive could not complete the chord. Here the members are saved as a group in the
result backend when the chord fails. This is a missing feature: no issue upstream names it.

It can be deleted when Celery itself keeps the members of a chord that failed. The tests in
``tests/unit/redrive/test_polled_chords.py`` fail without it.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from celery.result import GroupResult, result_from_tuple
from celery.utils.log import get_logger

from celery_dlq.model.headers import chord_key

logger = get_logger(__name__)


def keep_chord_headers(app: Any) -> None:
    """Save the members of each chord of ``app`` in its result backend when the chord fails."""
    unlock = app.tasks.get("celery.chord_unlock")
    # Celery calls this class with the members. A user's own task in its place may not accept it.
    if unlock is not None and "GroupResult" in inspect.signature(unlock.run).parameters:
        unlock.run = functools.partial(unlock.run, GroupResult=_Header)


class _Header(GroupResult):  # type: ignore[misc]
    """The members of a chord, which are saved if one of them failed."""

    def join(self, *args: Any, **kwargs: Any) -> Any:
        """The members' results.

        :raises Exception: of a member that failed.
        """
        return self._kept_on_failure(super().join, *args, **kwargs)

    def join_native(self, *args: Any, **kwargs: Any) -> Any:
        """The members' results, on a backend that joins in a way of its own."""
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
            backend.delete_group(key)  # a database refuses a second group with this key
            # New objects for the same members: the ones here hold the failure, and would raise it when saved.
            backend.save_group(key, result_from_tuple(self.as_tuple(), app=self.app))
        except Exception:
            logger.exception(
                "chord %s cannot be completed by a redrive: its members are not saved", self.id
            )
