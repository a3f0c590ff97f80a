"""Lists as files, for spreadsheets and programs. They are sent page by page, however long they are."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tornado.iostream import StreamClosedError

from celery_dlq.base.codec import dump_json
from celery_dlq.base.redact import clip
from celery_dlq.errors import CeleryDLQError
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.problems import Refused
from celery_dlq.flower.http.request import Given, asked
from celery_dlq.flower.resources.audit import finder_of
from celery_dlq.flower.resources.groups import group_records, read_wanted
from celery_dlq.model.group import GroupMark
from celery_dlq.view import records, times
from celery_dlq.view.records import csv_lines

if TYPE_CHECKING:
    from celery_dlq.store import Store

logger: logging.Logger = logging.getLogger(__name__)

#: Rows that are read, and sent, together.
_TOGETHER = 500

#: Seconds that a search takes before what it has found so far is sent.
_PATIENCE_S = 2.0

Records = Sequence[dict[str, Any]]

#: Reads a part of a list after a cursor, in a thread; returns it with the cursor of the next part, which is
#: None at the end.
Part = Callable[[str | None, "Store"], tuple[Records, str | None]]


class ExportPage(Page):
    """``/dead-letters/export/letters.csv?task=…``, with the filters of the list."""

    async def get(self, name: str) -> None:
        """Send the list as a file."""
        kind, _, form = name.rpartition(".")
        if kind not in _KINDS or form not in _TYPES:
            raise Refused(404, f"{clip(name, 40)} is not a list that can be exported.")
        part = _KINDS[kind](self, asked(self.request))
        # Errors in the filters, and of the store, come before anything is sent.
        rows, after = await self.site.ask(partial(part, None))
        self.set_header("Content-Type", _TYPES[form])
        self.set_header("Content-Disposition", f'attachment; filename="dead-{kind}.{form}"')
        is_titled = False
        try:
            while True:
                self._send(form, rows, titled=not is_titled)
                is_titled = is_titled or bool(rows)
                await self.flush()
                if after is None:
                    return
                rows, after = await self.site.ask(partial(part, after))
        except StreamClosedError:  # the browser has gone
            return
        except CeleryDLQError as error:
            # Otherwise the file would look complete.
            logger.warning("the export of %s is cut off: %s", kind, error)
            self._cut_off()

    def _send(self, form: str, rows: Records, *, titled: bool) -> None:
        lines = csv_lines(rows, titled=titled) if form == "csv" else [*map(dump_json, rows)]
        self.write("".join(f"{line}\n" for line in lines))

    def _cut_off(self) -> None:
        """Close the connection, so that the browser reports that the file is not whole."""
        with contextlib.suppress(AttributeError):  # a connection of another kind
            self.request.connection.stream.close()  # type: ignore[union-attr]


def _letters(page: ExportPage, given: Given) -> Part:
    wanted = page.filter_in(given)

    def part(after: str | None, store: Store) -> tuple[Records, str | None]:
        found = store.letters.find(wanted, limit=_TOGETHER, after=after, patience_s=_PATIENCE_S)
        owner_of = page.site.owner_of
        rows = [records.letter_record(one, owner=owner_of(one.route)) for one in found.letters]
        return rows, found.next

    return part


def _groups(page: ExportPage, given: Given) -> Part:
    now = times.utc_now()
    wanted, which = read_wanted(given, now)

    def part(after: str | None, store: Store) -> tuple[Records, str | None]:
        found = store.groups.find(wanted, now=now, limit=_TOGETHER, after=after, which=which)
        is_last = len(found) < _TOGETHER
        rows = group_records(page.site, store, found, now)
        return rows, None if is_last else GroupMark.of(found[-1]).cursor

    return part


def _audit(_page: ExportPage, given: Given) -> Part:
    find = finder_of(given, times.utc_now())

    def part(after: str | None, store: Store) -> tuple[Records, str | None]:
        found = find(store, after, _TOGETHER)
        return [records.as_record(row) for row in found.rows], found.next

    return part


_KINDS: Mapping[str, Callable[[ExportPage, Given], Part]] = {
    "letters": _letters,
    "groups": _groups,
    "audit": _audit,
}

_TYPES = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson; charset=utf-8"}
