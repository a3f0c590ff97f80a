"""The screen of a plan: letters that would be sent, and letters that cannot be sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from celery_dlq.cli.screens.render import Column, Facts, Field, Part, Table, table_of
from celery_dlq.model.operation import Orders
from celery_dlq.redrive.orders import suggested_pacing
from celery_dlq.view import times
from celery_dlq.view.text import counted

if TYPE_CHECKING:
    from celery_dlq.redrive.plan import Plan


_SKIPPED_FIELDS: Sequence[Field] = (
    (Column("CANNOT BE SENT", rigid=True, ids=True), lambda item: item.task_id),
    (Column("WHY", fold=True), lambda item: item.why_not),
)


def plan_parts(plan: Plan, orders: Orders, *, with_skipped: bool = True) -> list[Part]:
    """The parts of a plan's screen."""
    parts: list[Part] = [_facts(plan, orders)]
    if plan.by_task:
        columns = (Column("TASK"), Column("SENDABLE", right=True, rigid=True))
        parts.append(Table(columns, [*plan.by_task.items()]))
    if plan.skipped and with_skipped:
        parts.append(table_of(_SKIPPED_FIELDS, plan.skipped))
    return parts


def _facts(plan: Plan, orders: Orders) -> Facts:
    pacing = orders.pacing
    seconds = plan.sendable / pacing.rate + pacing.ramp_s / 2 if pacing.rate else None
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
