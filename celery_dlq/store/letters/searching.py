"""A search: letters are checked one by one, in steps, for what no index has."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlalchemy.engine import Connection

from celery_dlq.model.letter import DeadLetter
from celery_dlq.store.base import Filter, Page
from celery_dlq.store.database import tables
from celery_dlq.store.letters.pages import Mark, Places, end_of_step, newest, page_of
from celery_dlq.store.rows.likely import likely
from celery_dlq.store.rows.query import one_of

letter = tables.letter

#: Seconds of a search before indexes are asked for letters from further back. If they know some, the search
#: stops there, because these are probably the letters that a person looks for.
QUICK_S = 0.15


@dataclass(frozen=True)
class Search:
    """A search for a page of letters."""

    connection: Connection
    wanted: Filter
    #: Where the letters are that match.
    places: Places
    #: Where the letters are that are checked; an index has them in their order.
    steps: Places
    #: Letters in a page.
    limit: int
    monotonic: Callable[[], float]

    def run(self, start: Mark | None, patience_s: float | None) -> Page:
        """The page after ``start``.

        :param patience_s: see :meth:`~celery_dlq.store.letters.records.Letters.find`.
        """
        until_s = math.inf if patience_s is None else patience_s
        further_from_s = math.inf if patience_s is None else min(patience_s, QUICK_S)
        began, found = self.monotonic(), list[Mark]()
        while True:
            end = end_of_step(self.connection, self.steps, start)
            left = self.limit + 1 - len(found)
            found += newest(self.connection, self.places, start, down_to=end, limit=left)
            if end is None or len(found) > self.limit:
                return page_of(self.connection, found, self.limit)
            taken_s, further = self.monotonic() - began, tuple[DeadLetter, ...]()
            if taken_s >= further_from_s:
                further, further_from_s = self._further(end), math.inf
            if further or taken_s >= until_s:
                page = page_of(self.connection, found, self.limit)
                return replace(page, next=end.cursor, searched_to=end.moment, further=further)
            start = end

    def _further(self, end: Mark) -> tuple[DeadLetter, ...]:
        """Letters behind ``end`` that match, as far as indexes know them."""
        ids = sorted(likely(self.connection, self.wanted, self.limit))
        is_likely = one_of(self.connection, letter.c.id, ids)
        places = [
            (table, [*found, is_likely]) for table, found in self.places if table is letter and ids
        ]
        marks = newest(self.connection, places, end, limit=self.limit) if places else []
        return page_of(self.connection, marks, self.limit).letters
