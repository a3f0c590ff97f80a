"""Lists as files, for spreadsheets and programs. They are sent page by page, however long they are."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from tornado.iostream import StreamClosedError

from celery_dlq.codec import dump_json
from celery_dlq.errors import CeleryDLQError
from celery_dlq.flower.filters import Given
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.problems import Refused
from celery_dlq.flower.http.request import asked
from celery_dlq.flower.pages.audit import find_acts, read_acts
from celery_dlq.flower.pages.groups.listing import find_groups, read_wanted
from celery_dlq.redact import clip
from celery_dlq.store.rows.group_mark import GroupMark
from celery_dlq.view import records, times
from celery_dlq.view.spreadsheet import csv_lines

logger = logging.getLogger(__name__)

#: Rows that are read, and sent, together.
_TOGETHER = 500

#: Seconds that a search takes before what it has found so far is sent.
_PATIENCE_S = 2.0

Records = Sequence[dict[str, Any]]


class ExportPage(Page):
    """``/dead-letters/export/letters.csv?task=…``, with the filters of the list."""

    async def get(self, name: str) -> None:
        """Send the list as a file."""
        kind, _, form = name.rpartition(".")
        if kind not in _KINDS or form not in _TYPES:
            raise Refused(404, f"{clip(name, 40)} is not a list that can be exported.")
        pages = _KINDS[kind](self, asked(self.request))
        # Errors in the filters, and of the store, come before anything is sent.
        rows: Records = await anext(pages, [])
        self.set_header("Content-Type", _TYPES[form])
        self.set_header("Content-Disposition", f'attachment; filename="dead-{kind}.{form}"')
        is_titled = False
        try:
            while True:
                self._send(form, rows, titled=not is_titled)
                is_titled = is_titled or bool(rows)
                await self.flush()
                rows = await anext(pages)
        except StopAsyncIteration:
            return
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


async def _letters(page: ExportPage, given: Given) -> AsyncIterator[Records]:
    wanted, after = page.filter_in(given), None
    while True:
        found = await page.site.ask(
            lambda store, after=after: store.letters.find(  # type: ignore[misc]
                wanted, limit=_TOGETHER, after=after, patience_s=_PATIENCE_S
            )
        )
        yield [
            records.letter_record(letter, owner=page.site.owner_of(letter.route))
            for letter in found.letters
        ]
        after = found.next
        if after is None:
            return


async def _groups(page: ExportPage, given: Given) -> AsyncIterator[Records]:
    now, after = times.utc_now(), None
    wanted, which = read_wanted(given, now)
    while True:
        found = await page.site.ask(
            lambda store, after=after: find_groups(  # type: ignore[misc]
                store, wanted, which, now, after, _TOGETHER
            )
        )
        names = [group.fingerprint for group in found]
        tickets = await page.site.ask(
            lambda store, names=names: store.tickets.of_groups(names)  # type: ignore[misc]
        )
        yield [
            records.ticketed_group_record(
                group, tickets.get(group.fingerprint, ()), now,
                route_owner=page.site.owner_of(group.route),
            )
            for group in found
        ]  # fmt: skip
        if len(found) < _TOGETHER:
            return
        after = GroupMark.of(found[-1]).cursor


async def _audit(page: ExportPage, given: Given) -> AsyncIterator[Records]:
    wanted, after = read_acts(given, times.utc_now()), None
    while True:
        found = await page.site.ask(
            lambda store, after=after: find_acts(store, wanted, after, _TOGETHER)  # type: ignore[misc]
        )
        yield [records.as_record(row) for row in found.rows]
        after = found.next
        if after is None:
            return


_KINDS: Mapping[str, Callable[[ExportPage, Given], AsyncIterator[Records]]] = {
    "letters": _letters,
    "groups": _groups,
    "audit": _audit,
}

_TYPES = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson; charset=utf-8"}
