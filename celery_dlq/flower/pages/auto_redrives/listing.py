"""The list of automatic redrives: their states, last and next runs, and the letters that they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from celery_dlq.flower.filters import check_names
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.request import asked, first
from celery_dlq.model.auto_redrive import EVERY, AutoMode, AutoState, AutoStatus
from celery_dlq.view import times
from celery_dlq.view.auto_redrives import (
    NO_AUTO_REDRIVES,
    NO_RUNS,
    SeenAuto,
    SeenRun,
    seen_autos,
    seen_run,
    seen_runs,
)
from celery_dlq.view.operations import outcome_text

if TYPE_CHECKING:
    from celery_dlq.store import Store
    from celery_dlq.upkeep.auto_redrive.definition import AutoRedrive

#: Runs on the page.
_RUNS = 20

#: Seconds for which the pages are cached.
FRESH_S = 2.0

#: The message after each act on all of them.
_DONE = {
    "pause": "All automatic redrives are paused. Their running operations are cancelled before the next "
    "batch; letters that were not sent stay dead.",
    "resume": "The pause of all automatic redrives is lifted. One that was paused or suspended by its own "
    "name stays so.",
}


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
class AutoRow:
    """An automatic redrive in the list."""

    seen: SeenAuto
    last: RunRow | None
    marks: Mapping[str, str]

    @property
    def mode(self) -> str:
        """Whether it sends."""
        return AutoMode(self.seen.auto.mode).value

    @property
    def since(self) -> datetime | None:
        """When a person or it itself stopped it; None if it runs, or only all together are stopped."""
        return stopped_at(self.seen.status)


@dataclass(frozen=True, kw_only=True)
class Known:
    """The store's data for the page."""

    seen: Sequence[SeenAuto]
    #: The last run of each that has one, by name.
    last: Mapping[str, SeenRun]
    #: The state of all together.
    every: AutoStatus
    #: The latest runs of all, also of those that were removed from the settings.
    runs: Sequence[SeenRun]


@dataclass(frozen=True, kw_only=True)
class AutosView:
    """The values of the page."""

    rows: Sequence[AutoRow]
    runs: Sequence[RunRow]
    every: AutoStatus
    #: The marks of the forms for all together.
    marks: Mapping[str, str]
    done: str = ""
    none: str = NO_AUTO_REDRIVES
    no_runs: str = NO_RUNS
    #: The name of all together in addresses.
    all_name: str = EVERY

    @property
    def since(self) -> datetime | None:
        """When all together were stopped; None if they are not."""
        return stopped_at(self.every)


class AutosPage(Page):
    """``/dead-letters/auto-redrives``"""

    tab = "auto-redrives"

    async def get(self) -> None:
        """Show all automatic redrives of the app, and the latest runs."""
        given, now, autos = asked(self.request), times.utc_now(), self.site.auto_redrives
        check_names(given, ("done",))
        known = await self.site.recall(
            "auto-redrives", lambda store: look(store, autos, now), FRESH_S
        )
        view = AutosView(
            rows=[self._row(known, seen) for seen in known.seen],
            runs=run_rows(known.runs),
            every=known.every,
            marks={act: self.mark(f"{act} {EVERY}") for act in acts_of(known.every)},
            done=_DONE.get(first(given, "done"), ""),
        )
        self.page("auto_redrives", view)

    def _row(self, known: Known, seen: SeenAuto) -> AutoRow:
        name = seen.auto.name
        last = known.last.get(name)
        return AutoRow(
            seen=seen,
            last=None if last is None else RunRow(seen=last),
            marks={act: self.mark(f"{act} {name}") for act in acts_of(seen.status)},
        )


def look(store: Store, autos: Sequence[AutoRedrive], now: datetime) -> Known:
    """The store's data about ``autos``."""
    seen = seen_autos(store, autos, now)
    return Known(
        seen=seen,
        last={one.auto.name: seen_run(store, one.last_run) for one in seen if one.last_run},
        every=store.auto_redrives.statuses().get(EVERY, AutoStatus(name=EVERY)),
        runs=seen_runs(store, None, limit=_RUNS),
    )


def run_rows(runs: Sequence[SeenRun]) -> list[RunRow]:
    """Runs as rows of a list."""
    return [RunRow(seen=seen) for seen in runs]


def acts_of(status: AutoStatus) -> tuple[str, ...]:
    """The acts that a state allows: to stop, or to start again."""
    return ("pause",) if status.state is AutoState.ACTIVE else ("resume",)


def stopped_at(status: AutoStatus) -> datetime | None:
    """When a state was set that stops; None if it does not stop."""
    return None if status.state is AutoState.ACTIVE else status.at
