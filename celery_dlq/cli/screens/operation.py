"""The screens of operations: the plan of one, its state, the outcomes of its letters, and the next step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from celery_dlq.cli.screens.parts import (
    Block,
    Column,
    Facts,
    Field,
    Part,
    Table,
    last_name,
    table_of,
)
from celery_dlq.model.operation import ENDED, OperationState, Orders, Sending
from celery_dlq.redrive.orders import suggested_pacing
from celery_dlq.store.base import Operation
from celery_dlq.view import times
from celery_dlq.view.fields import facts_in
from celery_dlq.view.operations import (
    LETTERS,
    OPERATION,
    REDRIVE,
    given_orders,
    state_word,
    why_text,
)
from celery_dlq.view.text import counted
from celery_dlq.view.times import duration

if TYPE_CHECKING:
    from celery_dlq.redrive.plan import Plan

#: Turns words into a command line for this app.
Command = Callable[..., str]

_FIELDS: Sequence[Field] = (
    (Column("OPERATION", rigid=True), lambda one: one.id),
    (Column("STATE", rigid=True), state_word),
    (Column("PLANNED", right=True, rigid=True), lambda one: one.counts.planned),
    (Column("SENT", right=True, rigid=True), lambda one: one.counts.out),
    (Column("SUCCEEDED", right=True, from_width=80), lambda one: one.counts.succeeded),
    (Column("FAILED AGAIN", right=True, rigid=True), lambda one: one.counts.failed),
    (Column("SKIPPED", right=True, from_width=100), lambda one: one.counts.skipped),
    (Column("BY", from_width=100), lambda one: one.who),
    (Column("CREATED", rigid=True), lambda one: one.created_at),
    (Column("CAUSE"), lambda one: one.cause),
)

_SENDING_FIELDS: Sequence[Field] = (
    (Column("ID", rigid=True, ids=True), lambda sending: sending.task_id),
    (Column("TASK"), lambda sending: last_name(sending.task)),
    (Column("STATE", rigid=True), lambda sending: sending.state.value),
    (Column("WHY", fold=True), why_text),
    (Column("SENT", rigid=True, from_width=120), lambda sending: sending.sent_at),
    (Column("ENDED", rigid=True), lambda sending: sending.ended_at),
)

_SKIPPED_FIELDS: Sequence[Field] = (
    (Column("CANNOT BE SENT", rigid=True, ids=True), lambda item: item.task_id),
    (Column("WHY", fold=True), lambda item: item.why_not),
)


def operation_table(operations: Sequence[Operation]) -> Part:
    """A table of ``operations``, or a sentence if there are none."""
    return table_of(_FIELDS, operations) if operations else "No operations match."


def operation_parts(
    operation: Operation, sendings: Sequence[Sending], command: Command
) -> list[Part]:
    """The parts of an operation's screen.

    :param command: makes command lines such as ``celery -A shop dlq list``.
    """
    return [
        Facts("Operation", facts_in(OPERATION, operation, (REDRIVE,))),
        Facts("Letters", facts_in(OPERATION, operation, (LETTERS,))),
        Facts("Orders", given_orders(operation.orders)),
        table_of(_SENDING_FIELDS, sendings),
        *(Block(f"Changed in {one.task_id}", one.change) for one in sendings),
        f"Next: {next_step(operation, command)}",
    ]


def next_step(operation: Operation, command: Command) -> str:
    """The next step for the operator."""
    this, state, counts = operation.id, operation.state, operation.counts
    if state is OperationState.PAUSED:
        cancel = command("operations", "cancel", this)
        return f"to continue: {command('operations', 'resume', this)}; to end it: {cancel}"
    if state not in ENDED:
        pause = command("operations", "pause", this)
        return f"check again: {command('operations', 'show', this)}; to stop it: {pause}"
    if counts.sent:
        return f"wait for outcomes; check again: {command('operations', 'show', this)}"
    if counts.unknown:
        again = command("redrive", "--state", "redriven", "--operation", this)
        return f"unless the others still wait in their queue, send those without an outcome again: {again}"
    if counts.failed or (counts.left and state is not OperationState.DONE):
        return f"fix the cause, then redrive the dead letters: {command('groups')}"
    if counts.skipped:
        why = command("operations", "show", this, "--state", "skipped")
        return f"see why letters were skipped, fix the cause, and redrive them: {why}"
    return f"nothing; see the others: {command('operations', 'list')}"


def eta_text(left_s: float | None) -> str:
    """The remaining time in whole seconds; empty if it is unknown."""
    return "" if left_s is None else f"{duration(math.ceil(left_s))} left"


def plan_parts(plan: Plan, orders: Orders, *, with_skipped: bool = True) -> list[Part]:
    """The parts of a plan's screen."""
    columns = (Column("TASK"), Column("SENDABLE", right=True, rigid=True))
    return [
        _plan_facts(plan, orders),
        Table(columns, [*plan.by_task.items()]),
        table_of(_SKIPPED_FIELDS, plan.skipped if with_skipped else ()),
    ]


def _plan_facts(plan: Plan, orders: Orders) -> Facts:
    pacing = orders.pacing
    seconds = plan.sendable / pacing.rate if pacing.rate else None
    return Facts(
        "Plan",
        [
            ("Match", counted(plan.matched, "dead letter")),
            ("To send", to_send(plan)),
            ("Takes about", times.duration(seconds) if seconds and plan.sendable else None),
            ("Suggestion", _suggestion(plan, orders)),
            *(("Note", note) for note in plan.notes),
        ],
    )


def _suggestion(plan: Plan, orders: Orders) -> str:
    is_paced = orders.pacing.canary or orders.pacing.rate or not orders.guard.enabled
    found = {} if is_paced else suggested_pacing(plan.sendable)
    return " ".join(f"--{name} {value}" for name, value in found.items())


def to_send(plan: Plan) -> str:
    """The number of letters that a plan would send."""
    letters = counted(plan.sendable, "dead letter")
    return letters if plan.is_exact else f"at most {letters}"
