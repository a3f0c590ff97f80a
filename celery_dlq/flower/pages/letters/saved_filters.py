"""Filters of the list of letters that people save under a name, for all users of Flower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.errors import FilterError
from celery_dlq.flower.filters import Given, fields_of, pairs_of
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.problems import Refused
from celery_dlq.flower.http.request import first, sent
from celery_dlq.redact import Redactor, clip
from celery_dlq.store.base import Filter
from celery_dlq.store.saved_filters import SavedFilter
from celery_dlq.view.lookup import is_secret

#: The act of the form that saves a filter.
_SAVE = "save filter"


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A saved filter in the list of letters."""

    filter: SavedFilter
    #: Whether the list shows its letters now.
    is_shown: bool

    @property
    def name(self) -> str:
        """Its name."""
        return self.filter.name

    @property
    def pairs(self) -> Sequence[tuple[str, str]]:
        """Its values, for an address."""
        return pairs_of(self.filter.fields)


class SaveFilter(Page):
    """``POST /dead-letters/saved-filters``"""

    async def post(self) -> None:
        """Save the filter under a name, and show its letters."""
        given = sent(self.request)
        self.take_mark(given, _SAVE)
        fields, name = _shown_in(given), first(given, "name")
        wanted = self.filter_in(fields)
        check_no_secret(self.site.redactor, wanted)
        who = self.actor
        await self.site.act(lambda queue: queue.store.saved_filters.save(name, fields, who=who))
        self.see(self.links.page("letters", query=pairs_of(fields)))


class RemoveFilter(Page):
    """``POST /dead-letters/saved-filters/remove``"""

    async def post(self) -> None:
        """Remove the filter, and show the list with the same letters."""
        given = sent(self.request)
        name, fields, who = first(given, "name"), _shown_in(given), self.actor
        self.take_mark(given, _removal_of(name))

        def remove(queue: DeadLetterQueue) -> bool:
            return queue.store.saved_filters.remove(name, fields, who=who)

        if not await self.site.act(remove):
            raise Refused(404, f"This filter is not saved as {clip(name, 40)!r} any more.")
        self.see(self.links.page("letters", query=pairs_of(fields)))


def _shown_in(given: Given) -> dict[str, list[str]]:
    """The filters of the list with the form."""
    return fields_of(parse_qs(first(given, "query")))


def _removal_of(name: str) -> str:
    """The act of the form that removes a filter."""
    return f"remove filter {name}"


def check_no_secret(redactor: Redactor, wanted: Filter) -> None:
    """Check that ``wanted`` does not have the value of a redacted argument, which must not be stored, or of
    one without a name, which may be a secret.

    :raises FilterError: it does.
    """
    for argument in wanted.args:
        if is_secret(redactor, argument) or argument.is_by_position:
            raise FilterError(
                f"The values of {argument.path} are redacted, or may be secrets, so this filter cannot be "
                "saved; leave it out."
            )


def as_saved(found: Sequence[SavedFilter], fields: Given) -> list[Saved]:
    """The saved filters for a list with these fields."""
    return [Saved(filter=one, is_shown=pairs_of(one.fields) == pairs_of(fields)) for one in found]


def shown_of(found: Sequence[Saved]) -> Saved | None:
    """The saved filter whose letters are shown."""
    return next((one for one in found if one.is_shown), None)


def act_on(found: Sequence[Saved]) -> str:
    """The act of the form above the list: it removes the saved filter that is shown, or saves the filters
    that are set."""
    shown = shown_of(found)
    return _SAVE if shown is None else _removal_of(shown.name)
