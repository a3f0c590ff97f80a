"""The audit: who did what, when and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from celery_dlq.errors import FilterError
from celery_dlq.flower.http.handler import ListHandler
from celery_dlq.flower.http.request import (
    FilterForm,
    Given,
    check_names,
    first_value,
    limit_of,
    moment_of,
)
from celery_dlq.store.base import ACTS, AuditRow, Rows
from celery_dlq.view import lookup, times

if TYPE_CHECKING:
    from celery_dlq.store import Store

_NAMES = ("act", "who", "letter", "group", "since")


@dataclass(frozen=True, kw_only=True)
class AuditView(FilterForm):
    """The values of the page. A row is an act."""

    names = _NAMES
    acts: ClassVar = ACTS

    def target(self, detail: Mapping[str, Any]) -> tuple[str, str]:
        """The kind and the name of what an act was about; empty texts if it has no page."""
        found = (
            (kind, detail.get(kind)) for kind in ("request", "operation", "group", "letter", "auto")
        )
        return next(
            ((kind, name) for kind, name in found if name and isinstance(name, str)), ("", "")
        )


class Audit(ListHandler):
    """``/dead-letters/audit?act=…&who=…&letter=…&group=…&since=…``, with the filters of ``dlq audit``."""

    tab = template = "audit"
    view = AuditView

    async def get(self) -> None:
        """Show the newest acts, or those before a cursor."""
        given = self.values()
        find, after = finder_of(given, times.utc_now()), first_value(given, "after") or None
        found = await self.site.ask(lambda store: find(store, after, limit_of({})))
        self.page("audit", AuditView(given=given, rows=found.rows, next=found.next))


def finder_of(given: Given, now: datetime) -> Callable[[Store, str | None, int], Rows[AuditRow]]:
    """A function that reads the requested acts: from a store, before a cursor, at most this many.

    :raises FilterError: a name or a value is invalid.
    """
    check_names(given, (*_NAMES, "after"))
    act, who, letter, group, since = (first_value(given, name).strip() or None for name in _NAMES)
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
