"""The audit of an act that is carried out step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from celery_dlq.store import Store


class NotedAct:
    """An act on letters that come into the store. The audit has one row for it, which is written with the
    first letters and updated with the others. So an act that is cut off is recorded as far as it went.

    :param store: opens the store; called once, with the first letters.
    :param detail: the subject of the act, for the audit.
    """

    def __init__(
        self, store: Callable[[], Store], *, who: str, act: str, detail: Mapping[str, object]
    ) -> None:
        self._store, self._who, self._act, self._detail = cache(store), who, act, detail
        self._row: int | None = None
        self._count = 0

    def reached(self, count: int) -> None:
        """Record that the act was done to ``count`` letters so far.

        :raises StoreError: the store failed.
        """
        more, self._count = count - self._count, count
        if more:
            store = self._store()
            self._row = store.audit.note(
                who=self._who,
                act=self._act,
                detail=self._detail,
                count=more,
                now=store.now(),
                row=self._row,
            )
