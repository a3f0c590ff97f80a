"""The audit of an act that is carried out bit by bit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

from celery_dlq.store.base import Store


class NotedAct:
    """An operator's act on letters that come into the store. One row, written with the first of them: an act
    that is cut off has been noted as far as it went.

    :param detail: on what it is done.
    """

    def __init__(self, store: Store, *, who: str, act: str, detail: Mapping[str, object]) -> None:
        self._store, self._who, self._act, self._detail = store, who, act, detail
        self._row: int | None = None
        self._count = 0

    def reached(self, count: int) -> None:
        """It was done to ``count`` letters so far.

        :raises StoreError: the store failed.
        """
        more, self._count = count - self._count, count
        if self._row is None and more:
            self._row = self._store.record_act(
                who=self._who,
                act=self._act,
                detail=self._detail,
                count=more,
                now=datetime.now(timezone.utc),
            )
        elif self._row is not None and more:
            self._store.add_to_act(self._row, more)
