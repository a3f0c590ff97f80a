"""Runs of automatic redrives: the list as rows and by REST, and one run with the letters that it chose. For a
shadow run, they are the letters that it would have sent."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from celery_dlq.errors import UnknownAutoRedrive
from celery_dlq.flower.http.handler import Api, Page
from celery_dlq.flower.http.request import first, limit_of
from celery_dlq.model.auto_redrive import AutoMode
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import State
from celery_dlq.redact import clip
from celery_dlq.store.base import Filter
from celery_dlq.view.auto_redrives import (
    SeenRun,
    run_record,
    run_summary,
    seen_run,
    seen_runs,
)
from celery_dlq.view.operations import outcome_text
from celery_dlq.view.text import short_ids

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Letters per page.
_LETTERS = 50


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """A run in a list."""

    seen: SeenRun

    @property
    def outcome(self) -> str:
        """The outcomes of its letters; empty if nothing was sent."""
        operation = self.seen.operation
        return "" if operation is None else outcome_text(operation.counts)

    @property
    def is_shadow(self) -> bool:
        """Whether nothing was sent."""
        return self.seen.run.mode is AutoMode.SHADOW


@dataclass(frozen=True, kw_only=True)
class ChosenLetter:
    """A letter of a run."""

    task_id: str
    short_id: str
    #: As it is now; None after it was removed.
    letter: DeadLetter | None


@dataclass(frozen=True, kw_only=True)
class AutoRunView(RunRow):
    """The values of the page."""

    letters: Sequence[ChosenLetter]
    #: The cursor of the next page; empty on the last one.
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
        after = first(self.asked("after"), "after")
        self.page("auto_run", await self.site.ask(lambda store: look_up(store, run_id, after)))


class AutoRuns(Api):
    """``GET /api/dead-letters/auto-redrive-runs``"""

    async def get(self) -> None:
        """Runs that chose letters, newest first, also of automatic redrives that were removed."""
        given = self.asked("name", "limit")
        name, limit = first(given, "name") or None, limit_of(given)
        found = await self.site.ask(lambda store: seen_runs(store, name, limit=limit))
        self.reply({"runs": [run_record(seen) for seen in found]})


class OneAutoRun(Api):
    """``GET /api/dead-letters/auto-redrive-runs/{id}``"""

    async def get(self, run_id: str) -> None:
        """One run, with the task ids of its letters."""
        self.asked()
        seen, ids = await self.site.ask(
            lambda store: (_find(store, run_id), store.auto_redrives.letters_of(run_id))
        )
        self.reply({**run_record(seen), "task_ids": ids})


def look_up(store: Store, run_id: str, after: str) -> AutoRunView:
    """A run, and a page of its letters in the order of their ids.

    :param after: the id of the last letter of the previous page; empty for the first page.
    :raises UnknownAutoRedrive: no run has this id.
    """
    seen = _find(store, run_id)
    # The order of a database is not always that of Python.
    ids = sorted(store.auto_redrives.letters_of(run_id))
    start = bisect_right(ids, after)
    shown = ids[start : start + _LETTERS]
    is_last = start + _LETTERS >= len(ids)
    return AutoRunView(
        seen=seen,
        letters=_letters(store, shown),
        next="" if is_last else shown[-1],
        later=bool(after),
    )


def _find(store: Store, run_id: str) -> SeenRun:
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
