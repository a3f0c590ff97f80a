"""The page of one automatic redrive: its definition, state, runs and buttons, and what it would do now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

from celery_dlq.flower.acts import move_auto, reason_in
from celery_dlq.flower.filters import check_names
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.request import asked, first, sent
from celery_dlq.flower.pages.auto_redrives.listing import (
    FRESH_S,
    RunRow,
    acts_of,
    run_rows,
    stopped_at,
)
from celery_dlq.flower.pages.letters.listing import Row, rows_of
from celery_dlq.model.auto_redrive import EVERY
from celery_dlq.store.base import Filter
from celery_dlq.view import auto_redrives as facts
from celery_dlq.view import times
from celery_dlq.view.auto_redrives import (
    SeenAuto,
    SeenRun,
    in_the_way,
    seen_auto,
    seen_runs,
)
from celery_dlq.view.discreet import discreet
from celery_dlq.view.operations import given_orders

if TYPE_CHECKING:
    from celery_dlq.api.queue import DeadLetterQueue
    from celery_dlq.store import Store
    from celery_dlq.upkeep.auto_redrive.chooser import Choice
    from celery_dlq.upkeep.auto_redrive.runner import Look

#: Runs on the page, and letters of a trial.
_RUNS, _LETTERS = 50, 50

_DONE = {
    "pause": "It is paused. A running operation of it is cancelled before its next batch; letters that were "
    "not sent stay dead.",
    "resume": "It was resumed. An operation that was cancelled stays so; its letters are chosen again.",
    "run": "A worker looks for its letters as soon as its hours allow. All conditions and limits still hold.",
}


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known about an automatic redrive."""

    seen: SeenAuto
    runs: Sequence[SeenRun]


@dataclass(frozen=True, kw_only=True)
class AutoView:
    """The values of the page."""

    known: Known
    marks: Mapping[str, str]
    done: str = ""
    no_run: str = facts.NO_RUN

    @property
    def seen(self) -> SeenAuto:
        """The automatic redrive."""
        return self.known.seen

    @property
    def since(self) -> datetime | None:
        """When it was stopped by its own name; None if it was not."""
        return stopped_at(self.seen.status)

    @property
    def parts(self) -> list[tuple[str, list[facts.Fact]]]:
        """Its definition, orders and conditions, with their titles."""
        auto = self.seen.auto
        parts: list[tuple[str, list[facts.Fact]]] = [
            ("Definition", facts.definition(auto)),
            ("Conditions", facts.conditions(auto)),
            ("Orders", list(given_orders(auto.orders))),
        ]
        given = [(title, facts.given(pairs)) for title, pairs in parts]
        return [(title, pairs) for title, pairs in given if pairs]

    @property
    def state(self) -> list[facts.Fact]:
        """Its state, who set it, and its next look."""
        return facts.given(facts.state(self.seen))

    @property
    def runs(self) -> list[RunRow]:
        """Its latest runs."""
        return run_rows(self.known.runs)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What an automatic redrive would do, and why a worker would not do it now."""

    look: Look
    not_now: Sequence[str]
    probe: str


@dataclass(frozen=True, kw_only=True)
class TrialView:
    """The values of the page of a trial."""

    trial: Trial
    #: The letters on the page, by their ids; without those that have been deleted since.
    rows: Mapping[str, Row]
    limit: int = _LETTERS

    @property
    def name(self) -> str:
        """The automatic redrive."""
        return self.trial.look.name

    @property
    def summary(self) -> str:
        """What it would do, in a sentence."""
        return facts.look_summary(self.trial.look)

    @property
    def waiting(self) -> list[tuple[int, str]]:
        """How many letters wait, by reason, the most first."""
        return facts.waiting(self.trial.look)

    @property
    def letters(self) -> list[str]:
        """The letters that it would send."""
        return list(self.trial.look.choice.letters)

    @property
    def held(self) -> list[tuple[str, str]]:
        """The letters that it would hold, each with the reason."""
        return list(self.trial.look.choice.held.items())


class AutoPage(Page):
    """``/dead-letters/auto-redrives/<name>``"""

    tab = "auto-redrives"

    async def get(self, name: str) -> None:
        """Show one automatic redrive."""
        given = asked(self.request)
        check_names(given, ("done",))
        known = await self.site.consult(
            ("auto-redrive", name, _RUNS), lambda queue: look_up(queue, name, _RUNS), FRESH_S
        )
        acts = acts_of(known.seen.status) + (() if known.seen.stopped else ("run",))
        view = AutoView(
            known=known,
            marks={act: self.mark(f"{act} {name}") for act in acts},
            done=_DONE.get(first(given, "done"), ""),
        )
        self.page("auto_redrive", view)


class AutoTrial(Page):
    """``/dead-letters/auto-redrives/<name>/dry-run``"""

    tab = "auto-redrives"

    async def get(self, name: str) -> None:
        """Show what it would do now; it may be ten seconds old."""
        check_names(asked(self.request), ())
        trial = await self.site.consult(("auto-trial", name), lambda queue: attempt(queue, name))
        rows = await self.site.ask(lambda store: _rows(store, trial.look.choice))
        self.page("auto_trial", TrialView(trial=trial, rows=rows))


class AutoAct(Page):
    """``POST /dead-letters/auto-redrives/<name>/<act>``; the name ``*`` stands for all."""

    tab = "auto-redrives"

    async def post(self, name: str) -> None:
        """Run the act, once per form."""
        given = sent(self.request)
        self.take_mark(given, f"{self.act} {name}")
        act, who, why = self.act, self.actor, reason_in(given)
        await self.site.act(lambda queue: move_auto(queue, name, act, who, why))
        page = self.links.page(self.tab, *(() if name == EVERY else (name,)))
        self.see(f"{page}?done={act}")


def look_up(queue: DeadLetterQueue, name: str, limit: int) -> Known:
    """An automatic redrive, and its latest runs.

    :raises UnknownAutoRedrive: the settings have none with this name.
    """
    auto = queue.auto_redrive_named(name)
    store = discreet(queue.store, queue.redactor)
    return Known(
        seen=seen_auto(store, auto, times.utc_now()), runs=seen_runs(store, name, limit=limit)
    )


def attempt(queue: DeadLetterQueue, name: str) -> Trial:
    """What an automatic redrive would do if it looked for letters now. Nothing is sent or changed.

    :raises UnknownAutoRedrive: the settings have none with this name.
    :raises SettingsError: a definition does not fit the app.
    """
    auto, now = queue.auto_redrive_named(name), times.utc_now()
    seen = seen_auto(discreet(queue.store, queue.redactor), auto, now)
    return Trial(look=queue.try_auto(name), not_now=in_the_way(seen, now), probe=auto.require.probe)


def _rows(store: Store, choice: Choice) -> Mapping[str, Row]:
    """The first letters of a choice, by their ids."""
    ids = (*islice(choice.letters, _LETTERS), *islice(choice.held, _LETTERS))
    found = store.letters.find(Filter(ids=ids), limit=len(ids)).letters if ids else ()
    return {row.letter.task_id: row for row in rows_of(found)}
