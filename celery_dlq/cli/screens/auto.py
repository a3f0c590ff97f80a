"""The screens of automatic redrives: their states, definitions and runs, and what they would do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from celery_dlq.cli.screens.operation import Command
from celery_dlq.cli.screens.parts import Column, Facts, Field, Part, Table, table_of
from celery_dlq.model.auto_redrive import AutoMode, HeldLetter
from celery_dlq.view import auto_redrives as facts
from celery_dlq.view.auto_redrives import SeenAuto, SeenRun, SeenSuggestion, definition_text
from celery_dlq.view.operations import given_orders, outcome_text
from celery_dlq.view.times import duration

if TYPE_CHECKING:
    from celery_dlq.upkeep.auto_redrive.runner import Look
    from celery_dlq.upkeep.auto_redrive.suggesting import Outcomes

#: Letters of a dry run that a table names; the records name all.
_NAMED = 20

_FIELDS: Sequence[Field] = (
    (Column("NAME", rigid=True), lambda seen: seen.auto.name),
    (Column("MODE", rigid=True), lambda seen: AutoMode(seen.auto.mode).value),
    (Column("STATE", rigid=True), lambda seen: seen.state.value),
    (Column("OWNER", from_width=80), lambda seen: seen.auto.owner),
    (Column("LAST LOOK", from_width=100), lambda seen: seen.status.looked_at),
    (Column("NEXT LOOK", rigid=True), lambda seen: seen.next_look),
    (Column("LAST RUN", rigid=True), lambda seen: seen.last_run and seen.last_run.at),
    (Column("HELD", right=True, rigid=True), lambda seen: seen.held),
)

_RUN_FIELDS: Sequence[Field] = (
    (Column("RUN", rigid=True), lambda seen: seen.run.id),
    (Column("NAME", rigid=True), lambda seen: seen.run.name),
    (Column("MODE", rigid=True), lambda seen: seen.run.mode.value),
    (Column("AT", rigid=True), lambda seen: seen.run.at),
    (Column("LETTERS", right=True, rigid=True), lambda seen: seen.run.letters),
    (Column("STATE", rigid=True), lambda seen: seen.operation and seen.operation.state.value),
    (
        Column("OUTCOMES"),
        lambda seen: seen.operation and outcome_text(seen.operation.counts),
    ),
    (Column("CAUSE"), lambda seen: seen.operation and seen.operation.cause),
)

_SUGGESTION_FIELDS: Sequence[Field] = (
    (Column("GROUP", rigid=True), lambda seen: seen.suggestion.fingerprint[:12]),
    (Column("TASK"), lambda seen: seen.suggestion.task),
    (Column("EXCEPTION", from_width=80), lambda seen: seen.exception_type.rpartition(".")[2]),
    (Column("OPEN", right=True, rigid=True), lambda seen: seen.open_count),
    (Column("AT LEAST THIS OLD", rigid=True), lambda seen: duration(seen.suggestion.after_s)),
    (Column("SUCCEEDED", rigid=True), lambda seen: _share_text(seen.suggestion.older)),
    (
        Column("YOUNGER", rigid=True, from_width=100),
        lambda seen: _share_text(seen.suggestion.younger),
    ),
)


def auto_parts(found: Sequence[SeenAuto], command: Command) -> list[Part]:
    """The screen of all automatic redrives, or a sentence if there are none."""
    if not found:
        how = command("help", "auto-redrive")
        return [f"{facts.NO_AUTO_REDRIVES}; see: {how}"]
    return [
        table_of(_FIELDS, found),
        *(f"{one.auto.name}: {one.stopped}" for one in found if one.stopped),
    ]


def whole_auto_parts(seen: SeenAuto, runs: Sequence[SeenRun], command: Command) -> list[Part]:
    """The screen of one automatic redrive."""
    parts: list[Part] = [
        Facts("Automatic redrive", facts.definition(seen.auto)),
        Facts("Conditions", facts.conditions(seen.auto)),
        Facts("State", facts.state(seen)),
    ]
    orders = Facts("Orders", given_orders(seen.auto.orders))
    if orders.given:
        parts.insert(2, orders)
    parts.append(run_table(runs) if runs else facts.NO_RUN)
    return [*parts, f"Next: {_next_step(seen, command)}"]


def run_table(runs: Sequence[SeenRun]) -> Part:
    """A table of runs, or a sentence if there are none."""
    return table_of(_RUN_FIELDS, runs) if runs else facts.NO_RUNS


def look_parts(look: Look, in_the_way: Sequence[str]) -> list[Part]:
    """The screen of a dry run.

    :param in_the_way: why a worker would not do it now.
    """
    tables = (
        _waiting(look),
        _named("WOULD BE SENT", dict.fromkeys(look.choice.letters, "")),
        _named("WOULD BE HELD", look.choice.held),
    )
    return [
        facts.look_summary(look),
        *(f"A worker would not do it now: {why}." for why in in_the_way),
        *(table for table in tables if table.rows),
    ]


def suggestion_parts(found: Sequence[SeenSuggestion], command: Command) -> list[Part]:
    """The screen of suggestions, or a sentence if there are none."""
    if not found:
        return [
            "No group has enough redrives that succeeded. Next: redrive letters by hand, and look again; "
            f"see: {command('help', 'redrive-safely')}"
        ]
    return [
        table_of(_SUGGESTION_FIELDS, found),
        f"The first one, for dlq_auto_redrive: {definition_text(found[0])}",
        f"Next: see {command('help', 'auto-redrive')}; --format json has the code of each.",
    ]


def held_facts(held: HeldLetter | None) -> list[Part]:
    """Whether and why a letter is held, as a part of its screen; none if it is not held."""
    if held is None:
        return []
    return [Facts(facts.HELD, facts.holding(held))]


def _next_step(seen: SeenAuto, command: Command) -> str:
    name = seen.auto.name
    if seen.stopped:
        own = seen.status.state is seen.state and seen.stopped.startswith("it is")
        return f"after a fix: {command('auto', 'resume', *([name] if own else []))}"
    return f"see what it would send now: {command('auto', 'run', name, '--dry-run')}"


def _waiting(look: Look) -> Table:
    columns = (Column("LETTERS", right=True, rigid=True), Column("WAIT BECAUSE", fold=True))
    return Table(columns, facts.waiting(look))


def _share_text(outcomes: Outcomes) -> str:
    """Such as ``97% of 412``; empty without redrives. Only all of them are 100 %."""
    if not outcomes.redrives:
        return ""
    percent = math.floor(outcomes.share * 100)
    return f"{percent}% of {outcomes.redrives:,}"


def _named(title: str, letters: Mapping[str, str]) -> Table:
    shown = list(letters.items())[:_NAMED]
    whole = (
        f"{title}, THE FIRST {len(shown)} OF {len(letters)}" if len(shown) < len(letters) else title
    )
    columns = [Column(whole, rigid=True, ids=True), Column("BECAUSE", fold=True)]
    if not any(letters.values()):
        return Table(columns[:1], [(task_id,) for task_id, _ in shown])
    return Table(columns, shown)
