"""Automatic redrives and handlers: the list, one with its definition and its state, what an automatic
redrive would do now, and their buttons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from celery_dlq.errors import OperationError
from celery_dlq.flower.http.handler import Api, Page
from celery_dlq.flower.http.request import first, limit_of, reason_in
from celery_dlq.flower.resources.letters import Row, rows_of
from celery_dlq.model.automation import EVERY, AutoState, AutoStatus
from celery_dlq.model.handling import Handling
from celery_dlq.store.base import Filter
from celery_dlq.view import automations as facts
from celery_dlq.view import times
from celery_dlq.view.automations import (
    SeenAuto,
    auto_record,
    in_the_way,
    look_record,
    seen_auto,
    seen_autos,
    whole_auto_record,
)
from celery_dlq.view.letters import said_of
from celery_dlq.view.lookup import redacting
from celery_dlq.view.operations import given_orders

if TYPE_CHECKING:
    from celery_dlq.api.queue import DeadLetterQueue
    from celery_dlq.store import Store
    from celery_dlq.upkeep.automation.redriver import Look

#: The latest letters of one.
_LATEST = 50

#: Letters of a trial.
_LETTERS = 50

#: Seconds for which the pages are cached.
_FRESH_S = 2.0

#: The message after each act on all of them.
_DONE_TO_ALL = {
    "pause": "All automations are paused. Their running operations are cancelled before the next batch; "
    "letters that were not sent stay dead.",
    "resume": "The pause of all automations is lifted. One that was paused or suspended by its own name "
    "stays so.",
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
class AutosView(Standing):
    """The values of the list. The status is that of all together."""

    rows: Sequence[AutoView]
    done: str = ""
    none: str = facts.NO_AUTOMATIONS
    #: The name of all together in addresses.
    all_name: str = EVERY


@dataclass(frozen=True, kw_only=True)
class AutoView(Standing):
    """An automation in the list, and the values of its page."""

    seen: SeenAuto
    #: The latest letters that it had; empty in the list.
    latest: Sequence[Handling] = ()
    done: str = ""
    none: str = facts.NO_LETTERS

    @property
    def acts(self) -> Sequence[str]:
        """The acts that its state allows."""
        can_run = self.seen.redrive is not None and not self.seen.stopped
        return [*super().acts, *(("run",) if can_run else ())]

    @property
    def parts(self) -> list[tuple[str, list[facts.Fact]]]:
        """Its definition, orders and conditions, with their titles."""
        redrive = self.seen.redrive
        parts: list[tuple[str, Iterable[facts.Fact]]] = [
            ("Definition", facts.definition(self.seen.auto))
        ]
        if redrive is not None:
            parts.append(("Conditions", facts.conditions(redrive)))
            parts.append(("Orders", given_orders(redrive.orders)))
        given = [(title, facts.given(pairs)) for title, pairs in parts]
        return [(title, pairs) for title, pairs in given if pairs]

    @property
    def state(self) -> list[facts.Fact]:
        """Its state, who set it, and its next look."""
        return facts.given(facts.state(self.seen))

    def said(self, handling: Handling) -> str:
        """Why a handling failed, or what its verdict says."""
        return said_of(handling.detail, handling.error)


@dataclass(frozen=True, kw_only=True)
class TrialView:
    """The result of a trial of an automatic redrive."""

    look: Look
    #: Why a worker would not do it now.
    not_now: Sequence[str]
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
        return [one.task_id for one in self.look.letters]

    @property
    def held(self) -> list[tuple[str, str]]:
        """The letters that it would hold, each with the reason."""
        return list(self.look.held.items())


class AutosPage(Page):
    """``/dead-letters/automations``"""

    tab = "automations"

    async def get(self) -> None:
        """Show all automations of the app."""
        done = first(self.asked("done"), "done")
        view = await self.site.consult("automations", look, _FRESH_S)
        self.page("automations", replace(view, done=_DONE_TO_ALL.get(done, "")))


class AutoPage(Page):
    """``/dead-letters/automations/<name>``"""

    tab = "automations"

    async def get(self, name: str) -> None:
        """Show one automation."""
        done = first(self.asked("done"), "done")
        view = await self.site.consult(
            ("automation", name, _LATEST), lambda queue: look_up(queue, name, _LATEST), _FRESH_S
        )
        self.page("automation", replace(view, done=ACTS.get(done, "")))


class TrialPage(Page):
    """``/dead-letters/automations/<name>/dry-run``"""

    tab = "automations"

    async def get(self, name: str) -> None:
        """Show what an automatic redrive would do now; it may be ten seconds old."""
        self.asked()
        view = await self.site.consult(("auto-trial", name), lambda queue: attempt(queue, name))
        rows = await self.site.ask(lambda store: _rows(store, view.look))
        self.page("auto_trial", replace(view, rows=rows))


class AutoAct(Page):
    """``POST /dead-letters/automations/<name>/<act>``; the name ``*`` stands for all."""

    tab = "automations"

    async def post(self, name: str) -> None:
        """Run the act, once per form."""
        act, who = self.act, self.actor
        why = reason_in(self.sent_for(f"auto {name}"))
        await self.site.act(lambda queue: _move(queue, name, act, who, why))
        page = self.links.page(self.tab, *(() if name == EVERY else (name,)))
        self.see(f"{page}?done={act}")


class Automations(Api):
    """``GET /api/dead-letters/automations``"""

    async def get(self) -> None:
        """All automatic redrives of the app, and its handlers, each in the order in which they come first."""
        self.asked()
        self.reply(await self.site.consult_now(_records))


class OneAutomation(Api):
    """``GET /api/dead-letters/automations/{name}``"""

    async def get(self, name: str) -> None:
        """One automation: its definition, its state, and its latest letters; at most two seconds old."""
        limit = limit_of(self.asked("limit"))
        view = await self.site.consult(
            ("automation", name, limit), lambda queue: look_up(queue, name, limit), _FRESH_S
        )
        self.reply(whole_auto_record(view.seen, view.latest))


class AutoTrial(Api):
    """``GET /api/dead-letters/automations/{name}/dry-run``"""

    async def get(self, name: str) -> None:
        """The result of a trial of an automatic redrive; at most ten seconds old."""
        self.asked()
        view = await self.site.consult(("auto-trial", name), lambda queue: attempt(queue, name))
        self.reply(look_record(view.look, view.not_now))


class MoveAuto(Api):
    """``POST /api/dead-letters/automations/{name}/<act>``: pause, resume or run. The name ``*`` stands for
    all."""

    async def post(self, name: str) -> None:
        """Run the act."""
        act, why, who = self.act, self.sent_reason(), self.actor

        def carry_out(queue: DeadLetterQueue) -> dict[str, Any]:
            _move(queue, name, act, who, why)
            return _records(queue, name)

        self.reply(await self.site.act(carry_out))


def look(queue: DeadLetterQueue) -> AutosView:
    """The automations of the app."""
    store, autos = redacting(queue.store, queue.redactor), queue.all_automations
    return AutosView(
        status=store.automations.statuses().get(EVERY, AutoStatus(name=EVERY)),
        rows=[
            AutoView(status=seen.status, seen=seen)
            for seen in seen_autos(store, autos, times.utc_now())
        ],
    )


def look_up(queue: DeadLetterQueue, name: str, limit: int) -> AutoView:
    """An automation, and the latest letters that it had.

    :raises UnknownAutomation: the app has none with this name.
    """
    auto, store = queue.automation_named(name), redacting(queue.store, queue.redactor)
    seen = seen_auto(store, auto, times.utc_now())
    latest = store.automations.find(name=name, limit=limit).rows
    return AutoView(status=seen.status, seen=seen, latest=latest)


def attempt(queue: DeadLetterQueue, name: str) -> TrialView:
    """Let an automatic redrive look for letters now, in a trial. Nothing is sent or changed.

    :raises UnknownAutomation: no automatic redrive has this name.
    :raises SettingsError: a definition does not fit the app.
    """
    auto, now = queue.automation_named(name), times.utc_now()
    seen = seen_auto(redacting(queue.store, queue.redactor), auto, now)
    return TrialView(look=queue.try_auto(name), not_now=in_the_way(seen, now))


def _move(queue: DeadLetterQueue, name: str, act: str, who: str, why: str) -> None:
    """Pause or resume an automation, or all of them; or let a worker look for the letters of one at once.

    :param name: ``*`` for all of them, except to run them.
    :raises UnknownAutomation: the app has none with this name.
    :raises OperationError: it is to run, and is stopped.
    """
    if act == "pause":
        queue.pause_auto(name, who=who, why=why)
    elif act == "resume":
        queue.resume_auto(name, who=who, why=why)
    else:
        store = redacting(queue.store, queue.redactor)
        seen = seen_auto(store, queue.automation_named(name), times.utc_now())
        if seen.stopped:
            raise OperationError(f"{name!r} does not run: {seen.stopped}. Resume it first.")
        queue.run_auto(name, who=who)


def _records(queue: DeadLetterQueue, name: str = EVERY) -> dict[str, Any]:
    """The records of the automation with this name; ``*`` for all."""
    autos = [auto for auto in queue.all_automations if name in (EVERY, auto.name)]
    store = redacting(queue.store, queue.redactor)
    return {"automations": [*map(auto_record, seen_autos(store, autos, times.utc_now()))]}


def _rows(store: Store, look: Look) -> Mapping[str, Row]:
    """The first letters of a look, by their ids."""
    chosen = (one.task_id for one in look.letters)
    ids = (*islice(chosen, _LETTERS), *islice(look.held, _LETTERS))
    found = store.letters.find(Filter(ids=ids), limit=len(ids)).letters if ids else ()
    return {row.letter.task_id: row for row in rows_of(found)}
