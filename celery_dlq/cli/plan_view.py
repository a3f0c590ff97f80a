"""A plan as a person reads it: what would be sent, what not and why, and what would change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from celery_dlq.cli.render import Column, Facts, Part, Short, Table
from celery_dlq.operation import Orders
from celery_dlq.view import times
from celery_dlq.view.text import counted, short_ids

if TYPE_CHECKING:
    from celery_dlq.redrive.plan import Plan, Skipped


def plan_parts(plan: Plan, orders: Orders, *, with_skipped: bool = True) -> list[Part]:
    """The parts of a plan's screen."""
    parts: list[Part] = [_facts(plan, orders)]
    if plan.by_task:
        columns = (Column("TASK"), Column("SENDABLE", right=True, rigid=True))
        parts.append(Table(columns, [*plan.by_task.items()]))
    if plan.skipped and with_skipped:
        parts.append(_skipped_table(plan.skipped))
    return parts


def _facts(plan: Plan, orders: Orders) -> Facts:
    pacing = orders.pacing
    seconds = plan.sendable / pacing.rate + pacing.ramp_s / 2 if pacing.rate else None
    return Facts(
        "Plan",
        [
            ("Match", counted(plan.matched, "dead letter")),
            ("To send", counted(plan.sendable, "dead letter")),
            ("Takes about", times.duration(seconds) if seconds and plan.sendable else None),
            *(("Note", note) for note in plan.notes),
        ],
    )


def _skipped_table(skipped: Sequence[Skipped]) -> Table:
    ids = short_ids([item.task_id for item in skipped])
    rows = [
        (Short(short, item.task_id), item.why) for short, item in zip(ids, skipped, strict=True)
    ]
    return Table((Column("CANNOT BE SENT", rigid=True), Column("WHY", fold=True)), rows)
