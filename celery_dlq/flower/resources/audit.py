"""The audit: who did what, when and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from celery_dlq.errors import FilterError
from celery_dlq.flower import words
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.request import FilterForm, Given, asked, check_names, first, moment_of
from celery_dlq.flower.http.site import Links
from celery_dlq.store.base import ACTS, AuditRow, Rows
from celery_dlq.view import lookup, times
from celery_dlq.view.acts import sentence
from celery_dlq.view.operations import named_values

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Acts per page.
_LIMIT = 50

_NAMES = ("act", "who", "letter", "group", "since")


@dataclass(frozen=True)
class ActRow:
    """An act in the list."""

    act: AuditRow
    links: Links

    @property
    def target(self) -> tuple[str, str]:
        """The name and the address of what the act was about; empty texts if it has no page."""
        detail = self.act.detail
        pages = {
            "operation": self.links.operation,
            "group": self.links.group,
            "letter": self.links.letter,
            "auto": self.links.automation,
        }
        for name, address in pages.items():
            value = detail.get(name)
            if isinstance(value, str) and value:
                return f"{name} {value}", address(value)
        return "", ""

    @property
    def said(self) -> str:
        """What was done."""
        return sentence(self.act, words.moment)

    @property
    def detail(self) -> str:
        """Everything that is recorded about it, except the diff of a change."""
        return named_values({k: value for k, value in self.act.detail.items() if k != "changed"})


@dataclass(frozen=True, kw_only=True)
class AuditView(FilterForm):
    """The values of the page."""

    rows: Sequence[ActRow] = ()
    acts: Sequence[str] = ACTS


class AuditPage(Page):
    """``/dead-letters/audit?act=…&who=…&letter=…&group=…&since=…``, with the filters of ``dlq audit``."""

    tab = "audit"

    async def get(self) -> None:
        """Show the newest acts, or those before a cursor."""
        given: Given = {}
        try:
            given = asked(self.request)
            find, after = finder_of(given, times.utc_now()), first(given, "after") or None
            found = await self.site.ask(lambda store: find(store, after, _LIMIT))
        except FilterError as error:
            view = AuditView(given=given, problem=str(error), pairs=_set_in(given))
            self.page("audit", view, 400)
            return
        rows = [ActRow(row, self.links) for row in found.rows]
        view = AuditView(given=given, pairs=_set_in(given), rows=rows, next=found.next or "")
        self.page("audit", view)


def finder_of(given: Given, now: datetime) -> Callable[[Store, str | None, int], Rows[AuditRow]]:
    """A function that reads the requested acts: from a store, before a cursor, at most this many.

    :raises FilterError: a name or a value is invalid.
    """
    check_names(given, (*_NAMES, "after"))
    act, who, letter, group, since = (first(given, name).strip() or None for name in _NAMES)
    if act not in (None, *ACTS):
        raise FilterError(f"act must be one of {', '.join(ACTS)}.")
    moment = moment_of("since", since, now)

    def find(store: Store, after: str | None, limit: int) -> Rows[AuditRow]:
        return store.audit.find(
            limit=limit,
            after=after,
            act=act,
            who=who,
            since=moment,
            letter=lookup.audited(lookup.letter_id, store, letter) if letter else None,
            group=lookup.audited(lookup.fingerprint, store, group) if group else None,
        )

    return find


def _set_in(given: Given) -> list[tuple[str, str]]:
    """The filters that are set."""
    return [(name, first(given, name)) for name in _NAMES if first(given, name).strip()]
