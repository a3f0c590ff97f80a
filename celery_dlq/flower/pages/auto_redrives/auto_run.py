"""The page of one run of an automatic redrive: the letters that it chose. For a shadow run, they are the
letters that it would have sent."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from celery_dlq.errors import UnknownAutoRedrive
from celery_dlq.flower.filters import check_names
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.request import asked, first
from celery_dlq.flower.pages.auto_redrives.listing import RunRow
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import State
from celery_dlq.redact import clip
from celery_dlq.store.base import Filter
from celery_dlq.view.auto_redrives import SeenRun, run_summary, seen_run
from celery_dlq.view.text import short_ids

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Letters per page.
_LETTERS = 50


@dataclass(frozen=True, kw_only=True)
class ChosenLetter:
    """A letter of a run."""

    task_id: str
    short_id: str
    #: As it is now; None after it was removed.
    letter: DeadLetter | None


@dataclass(frozen=True, kw_only=True)
class Known:
    """The store's data about a run."""

    seen: SeenRun
    letters: Sequence[ChosenLetter]
    #: The cursor of the next page; empty on the last one.
    next: str


@dataclass(frozen=True, kw_only=True)
class AutoRunView(RunRow):
    """The values of the page."""

    letters: Sequence[ChosenLetter]
    next: str
    later: bool

    @property
    def summary(self) -> str:
        """What it did, in a sentence."""
        return run_summary(self.seen.run)


class AutoRunPage(Page):
    """``/dead-letters/auto-redrive-runs/<id>?after=…``"""

    tab = "auto-redrives"

    async def get(self, run_id: str) -> None:
        """Show a run."""
        given = asked(self.request)
        check_names(given, ("after",))
        after = first(given, "after")
        known = await self.site.ask(lambda store: look_up(store, run_id, after))
        view = AutoRunView(
            seen=known.seen, letters=known.letters, next=known.next, later=bool(after)
        )
        self.page("auto_run", view)


def look_up(store: Store, run_id: str, after: str) -> Known:
    """A run, and a page of its letters in the order of their ids.

    :param after: the id of the last letter of the previous page; empty for the first page.
    :raises UnknownAutoRedrive: no run has this id.
    """
    seen = find_run(store, run_id)
    ids = store.auto_redrives.letters_of(run_id)
    # The order of a database is not always that of Python.
    ids.sort()
    start = bisect_right(ids, after)
    shown = ids[start : start + _LETTERS]
    is_last = start + _LETTERS >= len(ids)
    return Known(seen=seen, letters=_letters(store, shown), next="" if is_last else shown[-1])


def find_run(store: Store, run_id: str) -> SeenRun:
    """The run with this id.

    :raises UnknownAutoRedrive: no run has it.
    """
    run = store.auto_redrives.run(run_id)
    if run is None:
        raise UnknownAutoRedrive(f"No run of an automatic redrive has the id {clip(run_id, 80)!r}.")
    return seen_run(store, run)


def _letters(store: Store, ids: Sequence[str]) -> list[ChosenLetter]:
    if not ids:
        return []
    wanted = Filter(ids=tuple(ids), states=frozenset(State))
    stored = {one.task_id: one for one in store.letters.find(wanted, limit=len(ids)).letters}
    return [
        ChosenLetter(task_id=task_id, short_id=short, letter=stored.get(task_id))
        for short, task_id in zip(short_ids(ids), ids, strict=True)
    ]
