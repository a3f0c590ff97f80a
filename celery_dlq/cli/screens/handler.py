"""The screens of repair handlers: their definitions, what they did, and what they would do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from celery_dlq.cli.screens.parts import (
    Block,
    Column,
    Facts,
    Field,
    Part,
    Value,
    facts_of,
    last_name,
    table_of,
)
from celery_dlq.model.handling import GroupTicket, Handling, HandlingState, by_handler
from celery_dlq.view.letters import CHANGE, said_of
from celery_dlq.view.operations import named_values
from celery_dlq.view.text import counted
from celery_dlq.view.times import duration

if TYPE_CHECKING:
    from celery_dlq.upkeep.handlers.calling import HandlerTrial
    from celery_dlq.upkeep.handlers.definition import Handler

#: The number of a handler's letters in each state.
Counts = Mapping[HandlingState, int]

_HANDLING_FIELDS: Sequence[Field] = (
    (Column("QUEUED", rigid=True), lambda one: one.queued_at),
    (Column("HANDLER", rigid=True), lambda one: one.handler),
    (Column("VERSION", from_width=100), lambda one: one.version),
    (Column("ID", rigid=True, ids=True), lambda one: one.task_id),
    (Column("STATE", rigid=True), lambda one: one.state.value),
    (Column("VERDICT", rigid=True), lambda one: one.verdict),
    (Column("CALLS", right=True, from_width=100), lambda one: one.tries),
    (Column("OPERATION", from_width=120), lambda one: one.operation),
    (Column("DETAIL", fold=True), lambda one: said_of(one.detail, one.error)),
)

#: The columns on the screen of one letter.
_HANDLED_FIELDS = [field for field in _HANDLING_FIELDS if field[0].title != "ID"]

_TICKET_FIELDS: Sequence[Field] = (
    (Column("KIND", rigid=True), lambda ticket: ticket.kind.value),
    (Column("TO", fold=True), lambda ticket: ticket.url or ticket.to),
    (Column("WHY", fold=True), lambda ticket: ticket.why),
    (Column("BY"), lambda ticket: by_handler(ticket.handler)),
    (Column("SINCE", rigid=True), lambda ticket: ticket.at),
)

_TRIAL_FIELDS: Sequence[Field] = (
    (Column("ID", rigid=True, ids=True), lambda trial: trial.task_id),
    (Column("TASK"), lambda trial: last_name(trial.task)),
    (Column("VERDICT", rigid=True), lambda trial: trial.verdict or "error"),
    (Column("DETAIL", fold=True), lambda trial: said_of(trial.detail, trial.error)),
)


def handler_table(found: Sequence[tuple[Handler, Counts]]) -> Part:
    """A table of handlers, or a sentence if there are none."""
    if not found:
        return "This app has no repair handlers."
    fields: Sequence[Field] = (
        (Column("HANDLER", rigid=True), lambda pair: pair[0].name),
        (Column("VERSION", rigid=True), lambda pair: pair[0].version),
        (Column("WHERE", fold=True), lambda pair: where_of(pair[0])),
        (Column("PER HOUR", right=True, from_width=100), lambda pair: pair[0].per_hour),
        *((_count_column(state), _count_of(state)) for state in HandlingState),
    )
    return table_of(fields, found)


def handler_parts(handler: Handler, counts: Counts, latest: Sequence[Handling]) -> list[Part]:
    """The parts of a handler's screen."""
    facts = facts_of(
        "Handler",
        ("Name", handler.name),
        ("Version", handler.version),
        ("Where", where_of(handler)),
        ("Letters", "one of each group" if handler.once_per_group else None),
        ("Timeout", duration(handler.timeout)),
        ("Per hour", handler.per_hour),
        ("Queue", handler.queue),
    )
    numbers = Facts("Letters", [(state.value, counts.get(state)) for state in HandlingState])
    parts: list[Part] = [facts]
    if numbers.given:
        parts.append(numbers)
    parts.append(history_table(latest) if latest else "It has had no letters yet.")
    return parts


def history_table(found: Sequence[Handling]) -> Part:
    """A table of handlings, or a sentence if there are none."""
    return table_of(_HANDLING_FIELDS, found) if found else "No handlings match."


def handled_parts(handlings: Sequence[Handling], tickets: Sequence[GroupTicket]) -> list[Part]:
    """The acts of repair handlers on a letter, and the tickets of its group, as parts of its screen."""
    shown: list[Part] = []
    if handlings:
        shown.append(table_of(_HANDLED_FIELDS, handlings, "Handlers"))
    return shown + ticket_parts(tickets, "Tickets of its group")


def ticket_parts(tickets: Sequence[GroupTicket], title: str) -> list[Part]:
    """The tickets and escalations of a group as a part of a screen; none if it has none."""
    return [table_of(_TICKET_FIELDS, tickets, title)] if tickets else []


def changes_of(found: Sequence[Handling] | Sequence[HandlerTrial]) -> Iterator[Block]:
    """The changes in messages, as diffs."""
    for one in found:
        if one.detail.get(CHANGE):
            yield Block(f"Changed in {one.task_id}", str(one.detail[CHANGE]))


def trial_parts(trials: Sequence[HandlerTrial]) -> list[Part]:
    """The parts of a dry run's screen."""
    if not trials:
        return ["The handler would get no letters."]
    errors = sum(not trial.verdict for trial in trials)
    failed = f" {counted(errors, 'call')} ended without a verdict." if errors else ""
    said = f"Called with {counted(len(trials), 'letter')}. Nothing was sent or changed.{failed}"
    return [said, table_of(_TRIAL_FIELDS, trials), *changes_of(trials)]


def where_of(handler: Handler) -> str:
    """The letters that a handler gets, in words."""
    return named_values(handler.where.to_dict()) or "every dead letter"


def _count_column(state: HandlingState) -> Column:
    wide = 100 if state is HandlingState.STALE else 0
    return Column(state.value.upper(), right=True, rigid=True, from_width=wide)


def _count_of(state: HandlingState) -> Callable[[tuple[Handler, Counts]], Value]:
    return lambda pair: pair[1].get(state, 0)
