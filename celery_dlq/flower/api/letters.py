"""REST: letters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from celery_dlq.flower.api.paging import limit_of
from celery_dlq.flower.http.handler import Api
from celery_dlq.flower.http.request import asked, first
from celery_dlq.flower.pages.letters.letter import Known, known_of
from celery_dlq.flower.pages.letters.listing import values_lack_to
from celery_dlq.model.letter import DeadLetter
from celery_dlq.view import records, times

#: Seconds for a search that reads letters one by one. A program can wait longer than a person.
_PATIENCE_S = 2.0


class Letters(Api):
    """``GET /api/dead-letters``"""

    async def get(self) -> None:
        """A page of letters, newest failure first."""
        given = asked(self.request)
        wanted = self.filter_in(given, others=("limit", "after"))
        limit, after = limit_of(given), first(given, "after") or None
        page, lack_to = await self.site.ask(
            lambda store: (
                store.letters.find(wanted, limit=limit, after=after, patience_s=_PATIENCE_S),
                values_lack_to(store, wanted),
            )
        )
        self.reply(
            {
                "letters": self._records(page.letters),
                "next": page.next,
                "searched_to": times.iso(page.searched_to) if page.searched_to else None,
                "further": self._records(page.further),
                "values_lack_to": times.iso(lack_to) if lack_to else None,
            }
        )

    def _records(self, letters: Iterable[DeadLetter]) -> list[dict[str, Any]]:
        return [
            records.letter_record(letter, owner=self.site.owner_of(letter.route))
            for letter in letters
        ]


class Letter(Api):
    """``GET /api/dead-letters/letters/{id}``"""

    async def get(self, prefix: str) -> None:
        """One letter in full, except for its body."""
        known = await known_of(self.site, prefix)
        self.reply(_without_body(known, self.site.owner_of(known.letter.route)))


def _without_body(known: Known, owner: str) -> dict[str, Any]:
    """The record of ``dlq show --format json``, without the body. A body is not redacted, and a user of
    Flower may not be allowed to read the database."""
    record = records.whole_letter_record(known.letter, known.redrives, known.changes, owner=owner)
    del record["body"]
    handled = records.handled_record(known.handlings, known.tickets)
    return {**record, **handled, "held": records.held_record(known.held)}
