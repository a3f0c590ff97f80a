"""The exception types about which no rule decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.site import Links
from celery_dlq.store.base import TypeCount
from celery_dlq.view.unknown import CAUTION, redrives_of, settings_of, unknown_types


@dataclass(frozen=True, kw_only=True)
class TypeRow:
    """A type in the list."""

    type: TypeCount
    links: Links

    @property
    def redrives(self) -> str:
        """How its redrives ended."""
        return redrives_of(self.type)

    @property
    def address(self) -> str:
        """The open letters with this type."""
        return self.links.letters(exception=self.type.exception_type)


@dataclass(frozen=True, kw_only=True)
class UnknownView:
    """The values of the page."""

    rows: Sequence[TypeRow]
    #: Settings to paste.
    settings: str
    caution: str = CAUTION


class UnknownPage(Page):
    """``/dead-letters/unknown-exceptions``"""

    tab = "groups"

    async def get(self) -> None:
        """Show the types, at most ten seconds old."""
        self.asked()
        types = await self.site.recall("unknown exceptions", unknown_types)
        rows = [TypeRow(type=one, links=self.links) for one in types]
        self.page("unknown", UnknownView(rows=rows, settings=settings_of(types)))
