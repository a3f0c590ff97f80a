"""Automatic redrives and handlers: the list, one with its definition and its state, what an automatic
redrive would do now, and their buttons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from celery_dlq.errors import OperationError
from celery_dlq.flower.http.handler import Handler
from celery_dlq.flower.http.request import first_value, limit_of, reason_in
from celery_dlq.flower.words import with_short_ids
from celery_dlq.model.automation import EVERY, AutoStatus
from celery_dlq.store.base import Filter
from celery_dlq.view import automations as facts
from celery_dlq.view import times
from celery_dlq.view.lookup import redacting
from celery_dlq.view.operations import given_orders

if TYPE_CHECKING:
    from celery_dlq.api.queue import DeadLetterQueue
    from celery_dlq.model.handling import Handling
    from celery_dlq.model.letter import DeadLetter
    from celery_dlq.store import Store
    from celery_dlq.upkeep.automation.redriver import Look

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


class Automations(Handler):
    """``/dead-letters/automations``, and the same in the REST API."""

    tab = "automations"

    async def get(self) -> None:
        """All automatic redrives of the app, and its handlers, each in the order in which they come first."""
        given = self.known_values(*(() if self.is_api else ("done",)))
        if self.is_api:
            self.reply(await self.site.consult(_records))
            return
        status, autos = await self.site.consult(look, "automations", _FRESH_S)
        done = _DONE_TO_ALL.get(first_value(given, "done"), "")
        self.page("automations", autos, every=status, none=facts.NO_AUTOMATIONS, done=done)


class OneAutomation(Handler):
    """``/dead-letters/automations/<name>``, and the same in the REST API."""

    tab = "automations"

    async def get(self, name: str) -> None:
        """One automation: its definition, its state, and its latest letters; at most two seconds old."""
        given = self.known_values("limit" if self.is_api else "done")
        limit = limit_of(given)
        seen, latest = await self.site.consult(
            lambda queue: look_up(queue, name, limit), ("automation", name, limit), _FRESH_S
        )
        if self.is_api:
            self.reply(facts.whole_auto_record(seen, latest))
        else:
            done = ACTS.get(first_value(given, "done"), "")
            self.page(
                "automation", seen, latest=latest, none=facts.NO_LETTERS, done=done,
                state=facts.given(facts.state(seen)), parts=_parts(seen),
            )  # fmt: skip


class Trial(Handler):
    """``/dead-letters/automations/<name>/dry-run``, and the same in the REST API."""

    tab = "automations"

    async def get(self, name: str) -> None:
        """What an automatic redrive would do now; at most ten seconds old."""
        self.known_values()
        found, not_now = await self.site.consult(
            lambda queue: attempt(queue, name), ("auto-trial", name)
        )
        if self.is_api:
            self.reply(facts.look_record(found, not_now))
            return
        rows = await self.site.ask(lambda store: _rows(store, found))
        parts = (
            ("send", "Would be sent", [(one.task_id, "") for one in found.letters]),
            ("hold", "Would be held", list(found.held.items())),
        )
        said, waiting = facts.look_summary(found), facts.waiting(found)
        self.page(
            "auto_trial", found, not_now=not_now, rows=rows, parts=parts, limit=_LETTERS,
            said=said, waiting=waiting,
        )  # fmt: skip


class Move(Handler):
    """``POST /dead-letters/automations/<name>/<act>``, and the same in the REST API: pause, resume or run.
    The name ``*`` stands for all."""

    tab = "automations"

    async def post(self, name: str) -> None:
        """Run the act, once per form."""
        act, who = self.act, self.actor
        why = reason_in(self.act_values(f"auto {name}", "why"))

        def carry_out(queue: DeadLetterQueue) -> dict[str, Any]:
            _move(queue, name, act, who, why)
            return _records(queue, name)

        found = await self.site.act(carry_out)
        if self.is_api:
            self.reply(found)
        else:
            page = self.links.page(self.tab, *(() if name == EVERY else (name,)))
            self.see(f"{page}?done={act}")


def look(queue: DeadLetterQueue) -> tuple[AutoStatus, list[facts.AutoWithStatus]]:
    """The status of all automations together, and each of them."""
    store = redacting(queue.store, queue.redactor)
    status = store.automations.statuses().get(EVERY, AutoStatus(name=EVERY))
    return status, facts.autos_with_status(store, queue.all_automations, times.utc_now())


def look_up(
    queue: DeadLetterQueue, name: str, limit: int
) -> tuple[facts.AutoWithStatus, list[Handling]]:
    """An automation, and the latest letters that it had.

    :raises UnknownAutomation: the app has none with this name.
    """
    auto, store = queue.automation_named(name), redacting(queue.store, queue.redactor)
    latest = store.automations.find(name=name, limit=limit).rows
    return facts.auto_with_status(store, auto, times.utc_now()), [*latest]


def attempt(queue: DeadLetterQueue, name: str) -> tuple[Look, list[str]]:
    """Let an automatic redrive look for letters now, in a trial. Nothing is sent or changed. Returns what it
    would do, and why a worker would not do it now.

    :raises UnknownAutomation: no automatic redrive has this name.
    :raises SettingsError: a definition does not fit the app.
    """
    auto, now = queue.automation_named(name), times.utc_now()
    seen = facts.auto_with_status(redacting(queue.store, queue.redactor), auto, now)
    return queue.try_auto(name), facts.in_the_way(seen, now)


def _parts(seen: facts.AutoWithStatus) -> list[tuple[str, list[facts.Fact]]]:
    """The definition, orders and conditions of an automation, with their titles."""
    parts: list[tuple[str, Iterable[facts.Fact]]] = [("Definition", facts.definition(seen.auto))]
    if seen.redrive is not None:
        parts.append(("Conditions", facts.conditions(seen.redrive)))
        parts.append(("Orders", given_orders(seen.redrive.orders)))
    given = [(title, facts.given(pairs)) for title, pairs in parts]
    return [(title, pairs) for title, pairs in given if pairs]


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
        seen = facts.auto_with_status(store, queue.automation_named(name), times.utc_now())
        if seen.stopped:
            raise OperationError(f"{name!r} does not run: {seen.stopped}. Resume it first.")
        queue.run_auto(name, who=who)


def _records(queue: DeadLetterQueue, name: str = EVERY) -> dict[str, Any]:
    """The records of the automation with this name; ``*`` for all."""
    autos = [auto for auto in queue.all_automations if name in (EVERY, auto.name)]
    store = redacting(queue.store, queue.redactor)
    return {
        "automations": [
            *map(facts.auto_record, facts.autos_with_status(store, autos, times.utc_now()))
        ]
    }


def _rows(store: Store, trial: Look) -> Mapping[str, tuple[str, DeadLetter]]:
    """The first letters of a trial with their short ids, by their ids; without those that have been deleted
    since."""
    chosen = (one.task_id for one in trial.letters)
    ids = (*islice(chosen, _LETTERS), *islice(trial.held, _LETTERS))
    found = store.letters.find(Filter(ids=ids), limit=len(ids)).letters if ids else ()
    return {letter.task_id: (short, letter) for short, letter in with_short_ids(found)}
