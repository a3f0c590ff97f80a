"""Pages of letters. What no index has is looked for in one letter after the other, the newest failure first,
for as long as somebody waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlalchemy.engine import Connection

from celery_dlq.store.base import Filter, Page
from celery_dlq.store.query import Mark, Stretch, newest, page_of

#: Letters that are looked through before the next look at the clock. No statement takes so long that the
#: database ends it, however many letters there are, and even where each of them is fetched from a disk.
STEP = 500


def find_page(
    connection: Connection,
    wanted: Filter,
    *,
    limit: int,
    after: str | None,
    is_enough: Callable[[], bool],
) -> Page:
    """A page of letters and parked retries, newest failure first.

    :param is_enough: asked after each step whether the page is to be what was found so far.
    """
    start = None if after is None else Mark.read(after)
    if wanted == wanted.indexed:
        return page_of(
            connection, newest(connection, wanted, Stretch(start), limit=limit + 1), limit
        )
    found: list[Mark] = []
    while True:
        end = _end_of_step(connection, wanted, start)
        left = limit + 1 - len(found)
        found += newest(connection, wanted, Stretch(start, end), limit=left)
        if end is None or len(found) > limit:
            return page_of(connection, found, limit)
        if is_enough():
            page = page_of(connection, found, limit)
            return replace(page, next=end.cursor, searched_to=end.moment)
        start = end


def _end_of_step(connection: Connection, wanted: Filter, start: Mark | None) -> Mark | None:
    """The last of the letters of the next step; None when there are not so many."""
    ends = newest(connection, wanted.indexed, Stretch(start), limit=1, skip=STEP - 1)
    return ends[0] if ends else None
