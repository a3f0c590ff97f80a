"""Automatic redrives: the list, one with its definition and its state, what it would do now, and its buttons;
and their runs, each with the letters that it chose."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from celery_dlq.errors import OperationError, UnknownAutoRedrive
from celery_dlq.flower.http.handler import Api, Page
from celery_dlq.flower.http.request import first, limit_of, reason_in
from celery_dlq.flower.resources.letters import Row, rows_of
from celery_dlq.model.auto_redrive import EVERY, AutoMode, AutoState, AutoStatus
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import State
from celery_dlq.redact import clip
from celery_dlq.store.base import Filter
from celery_dlq.view import auto_redrives as facts
from celery_dlq.view import times
from celery_dlq.view.auto_redrives import (
    SeenAuto,
    SeenRun,
    auto_record,
    in_the_way,
    look_record,
    run_record,
    run_summary,
    seen_auto,
    seen_autos,
    seen_run,
    seen_runs,
    whole_auto_record,
)
from celery_dlq.view.lookup import discreet
from celery_dlq.view.operations import given_orders, outcome_text
from celery_dlq.view.text import short_ids

if TYPE_CHECKING:
    from celery_dlq.api.queue import DeadLetterQueue
    from celery_dlq.store import Store
    from celery_dlq.upkeep.auto_redrive.chooser import Choice
    from celery_dlq.upkeep.auto_redrive.definition import AutoRedrive
    from celery_dlq.upkeep.auto_redrive.runner import Look


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
        """The result, in a sentence."""
        return run_summary(self.seen.run)


class AutoRunPage(Page):
    """``/dead-letters/auto-redrive-runs/<id>?after=…``"""

    tab = "auto-redrives"

    async def get(self, run_id: str) -> None:
        """Show a run."""
        after = first(self.asked("after"), "after")
        self.page("auto_run", await self.site.ask(lambda store: look_up_run(store, run_id, after)))


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
            lambda store: (_find_run(store, run_id), store.auto_redrives.letters_of(run_id))
        )
        self.reply({**run_record(seen), "task_ids": ids})


def look_up_run(store: Store, run_id: str, after: str) -> AutoRunView:
    """A run, and a page of its letters in the order of their ids.

    :param after: the id of the last letter of the previous page; empty for the first page.
    :raises UnknownAutoRedrive: no run has this id.
    """
    seen = _find_run(store, run_id)
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


def _find_run(store: Store, run_id: str) -> SeenRun:
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


#: Runs of all on their page, and runs on the page of one.
_LATEST, _RUNS = 20, 50

#: Letters of a trial, and of a page of a run.
_LETTERS = 50

#: Seconds for which the pages are cached.
_FRESH_S = 2.0

#: The message after each act on all of them.
_DONE_TO_ALL = {
    "pause": "All automatic redrives are paused. Their running operations are cancelled before the next "
    "batch; letters that were not sent stay dead.",
    "resume": "The pause of all automatic redrives is lifted. One that was paused or suspended by its own "
    "name stays so.",
}

#: The acts on one, each with the message after it.
ACTS = {
    "pause": "It is paused. A running operation of it is cancelled before its next batch; letters that were "
    "not sent stay dead.",
    "resume": "It was resumed. An operation that was cancelled stays so; its letters are chosen again.",
    "run": "A worker looks for its letters as soon as its hours allow. All conditions and limits still hold.",
}


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A state that a person or an automatic redrive itself has set, and the acts that it allows."""

    status: AutoStatus

    @property
    def since(self) -> datetime | None:
        """When it was stopped by its own name; None if it was not."""
        return None if self.status.state is AutoState.ACTIVE else self.status.at

    @property
    def acts(self) -> Sequence[str]:
        """The acts that the state allows: to stop, or to start again."""
        return ("pause",) if self.status.state is AutoState.ACTIVE else ("resume",)


@dataclass(frozen=True, kw_only=True)
class AutoRow(Standing):
    """An automatic redrive in the list."""

    seen: SeenAuto
    last: RunRow | None

    @property
    def mode(self) -> str:
        """Whether it sends."""
        return AutoMode(self.seen.auto.mode).value


@dataclass(frozen=True, kw_only=True)
class AutosView(Standing):
    """The values of the list. The status is that of all together."""

    rows: Sequence[AutoRow]
    #: The latest runs of all, also of those that were removed from the settings.
    runs: Sequence[RunRow]
    done: str = ""
    none: str = facts.NO_AUTO_REDRIVES
    no_runs: str = facts.NO_RUNS
    #: The name of all together in addresses.
    all_name: str = EVERY


@dataclass(frozen=True, kw_only=True)
class AutoView(Standing):
    """The values of the page of one automatic redrive."""

    seen: SeenAuto
    #: Its latest runs.
    runs: Sequence[RunRow]
    done: str = ""
    no_run: str = facts.NO_RUN

    @property
    def acts(self) -> Sequence[str]:
        """The acts that its state allows."""
        return [*super().acts, *(() if self.seen.stopped else ("run",))]

    @property
    def parts(self) -> list[tuple[str, list[facts.Fact]]]:
        """Its definition, orders and conditions, with their titles."""
        auto = self.seen.auto
        parts: list[tuple[str, Iterable[facts.Fact]]] = [
            ("Definition", facts.definition(auto)),
            ("Conditions", facts.conditions(auto)),
            ("Orders", given_orders(auto.orders)),
        ]
        given = [(title, facts.given(pairs)) for title, pairs in parts]
        return [(title, pairs) for title, pairs in given if pairs]

    @property
    def state(self) -> list[facts.Fact]:
        """Its state, who set it, and its next look."""
        return facts.given(facts.state(self.seen))


@dataclass(frozen=True, kw_only=True)
class TrialView:
    """The result of a dry run of an automatic redrive."""

    look: Look
    #: Why a worker would not do it now.
    not_now: Sequence[str]
    probe: str
    #: The letters on the page, by their ids; without those that have been deleted since.
    rows: Mapping[str, Row] = field(default_factory=dict)
    limit: int = _LETTERS

    @property
    def summary(self) -> str:
        """The result, in a sentence."""
        return facts.look_summary(self.look)

    @property
    def waiting(self) -> list[tuple[int, str]]:
        """How many letters wait, by reason, the most first."""
        return facts.waiting(self.look)

    @property
    def letters(self) -> list[str]:
        """The letters that it would send."""
        return list(self.look.choice.letters)

    @property
    def held(self) -> list[tuple[str, str]]:
        """The letters that it would hold, each with the reason."""
        return list(self.look.choice.held.items())


class AutosPage(Page):
    """``/dead-letters/auto-redrives``"""

    tab = "auto-redrives"

    async def get(self) -> None:
        """Show all automatic redrives of the app, and the latest runs."""
        done = first(self.asked("done"), "done")
        autos, now = self.site.auto_redrives, times.utc_now()
        view = await self.site.recall(
            "auto-redrives", lambda store: look(store, autos, now), _FRESH_S
        )
        self.page("auto_redrives", replace(view, done=_DONE_TO_ALL.get(done, "")))


class AutoPage(Page):
    """``/dead-letters/auto-redrives/<name>``"""

    tab = "auto-redrives"

    async def get(self, name: str) -> None:
        """Show one automatic redrive."""
        done = first(self.asked("done"), "done")
        view = await self.site.consult(
            ("auto-redrive", name, _RUNS), lambda queue: look_up(queue, name, _RUNS), _FRESH_S
        )
        self.page("auto_redrive", replace(view, done=ACTS.get(done, "")))


class TrialPage(Page):
    """``/dead-letters/auto-redrives/<name>/dry-run``"""

    tab = "auto-redrives"

    async def get(self, name: str) -> None:
        """Show what it would do now; it may be ten seconds old."""
        self.asked()
        view = await self.site.consult(("auto-trial", name), lambda queue: attempt(queue, name))
        rows = await self.site.ask(lambda store: _rows(store, view.look.choice))
        self.page("auto_trial", replace(view, rows=rows))


class AutoAct(Page):
    """``POST /dead-letters/auto-redrives/<name>/<act>``; the name ``*`` stands for all."""

    tab = "auto-redrives"

    async def post(self, name: str) -> None:
        """Run the act, once per form."""
        act, who = self.act, self.actor
        why = reason_in(self.sent_for(f"auto {name}"))
        await self.site.act(lambda queue: _move(queue, name, act, who, why))
        page = self.links.page(self.tab, *(() if name == EVERY else (name,)))
        self.see(f"{page}?done={act}")


class AutoRedrives(Api):
    """``GET /api/dead-letters/auto-redrives``"""

    async def get(self) -> None:
        """All automatic redrives of the app, in the order in which they come first."""
        self.asked()
        autos, now = self.site.auto_redrives, times.utc_now()
        self.reply(await self.site.ask(lambda store: _records(store, autos, now)))


class OneAutoRedrive(Api):
    """``GET /api/dead-letters/auto-redrives/{name}``"""

    async def get(self, name: str) -> None:
        """One automatic redrive: its definition, its state, and its latest runs; at most two seconds old."""
        limit = limit_of(self.asked("limit"))
        view = await self.site.consult(
            ("auto-redrive", name, limit), lambda queue: look_up(queue, name, limit), _FRESH_S
        )
        self.reply(whole_auto_record(view.seen, [row.seen for row in view.runs]))


class AutoTrial(Api):
    """``GET /api/dead-letters/auto-redrives/{name}/dry-run``"""

    async def get(self, name: str) -> None:
        """The result of a dry run; at most ten seconds old."""
        self.asked()
        view = await self.site.consult(("auto-trial", name), lambda queue: attempt(queue, name))
        self.reply(look_record(view.look, view.not_now))


class MoveAuto(Api):
    """``POST /api/dead-letters/auto-redrives/{name}/<act>``: pause, resume or run. The name ``*`` stands for
    all."""

    async def post(self, name: str) -> None:
        """Run the act."""
        act, why, who = self.act, self.sent_reason(), self.actor

        def carry_out(queue: DeadLetterQueue) -> dict[str, Any]:
            _move(queue, name, act, who, why)
            autos = queue.settings.auto_redrive
            named = [auto for auto in autos if name in (EVERY, auto.name)]
            return _records(discreet(queue.store, queue.redactor), named, times.utc_now())

        self.reply(await self.site.act(carry_out))


def look(store: Store, autos: Sequence[AutoRedrive], now: datetime) -> AutosView:
    """``autos`` with their last runs, and the latest runs of all."""
    return AutosView(
        status=store.auto_redrives.statuses().get(EVERY, AutoStatus(name=EVERY)),
        rows=[
            AutoRow(
                status=seen.status,
                seen=seen,
                last=RunRow(seen=seen_run(store, seen.last_run)) if seen.last_run else None,
            )
            for seen in seen_autos(store, autos, now)
        ],
        runs=[RunRow(seen=run) for run in seen_runs(store, None, limit=_LATEST)],
    )


def look_up(queue: DeadLetterQueue, name: str, limit: int) -> AutoView:
    """An automatic redrive, and its latest runs.

    :raises UnknownAutoRedrive: the settings have none with this name.
    """
    auto = queue.auto_redrive_named(name)
    store = discreet(queue.store, queue.redactor)
    seen = seen_auto(store, auto, times.utc_now())
    runs = [RunRow(seen=run) for run in seen_runs(store, name, limit=limit)]
    return AutoView(status=seen.status, seen=seen, runs=runs)


def attempt(queue: DeadLetterQueue, name: str) -> TrialView:
    """Let an automatic redrive look for letters now, in a dry run. Nothing is sent or changed.

    :raises UnknownAutoRedrive: the settings have none with this name.
    :raises SettingsError: a definition does not fit the app.
    """
    auto, now = queue.auto_redrive_named(name), times.utc_now()
    seen = seen_auto(discreet(queue.store, queue.redactor), auto, now)
    return TrialView(
        look=queue.try_auto(name), not_now=in_the_way(seen, now), probe=auto.require.probe
    )


def _move(queue: DeadLetterQueue, name: str, act: str, who: str, why: str) -> None:
    """Pause or resume an automatic redrive, or all of them; or let a worker look for the letters of one at
    once.

    :param name: ``*`` for all of them, except to run them.
    :raises UnknownAutoRedrive: the settings have none with this name.
    :raises OperationError: it is to run, and is stopped.
    """
    if act == "pause":
        queue.pause_auto(name, who=who, why=why)
    elif act == "resume":
        queue.resume_auto(name, who=who, why=why)
    else:
        store = discreet(queue.store, queue.redactor)
        seen = seen_auto(store, queue.auto_redrive_named(name), times.utc_now())
        if seen.stopped:
            raise OperationError(
                f"Automatic redrive {name!r} does not run: {seen.stopped}. Resume it first."
            )
        queue.run_auto(name, who=who)


def _records(store: Store, autos: Sequence[AutoRedrive], now: datetime) -> dict[str, Any]:
    return {"auto_redrives": [auto_record(seen) for seen in seen_autos(store, autos, now)]}


def _rows(store: Store, choice: Choice) -> Mapping[str, Row]:
    """The first letters of a choice, by their ids."""
    ids = (*islice(choice.letters, _LETTERS), *islice(choice.held, _LETTERS))
    found = store.letters.find(Filter(ids=ids), limit=len(ids)).letters if ids else ()
    return {row.letter.task_id: row for row in rows_of(found)}
