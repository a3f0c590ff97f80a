"""The part of ``dlq stats`` about messages of killed workers."""

from __future__ import annotations

from collections.abc import Sequence

from celery_dlq.cli.screens.render import Column, Facts, Field, Part, table_of
from celery_dlq.view.lost import Losses, lost_facts, said_why

_FIELDS: Sequence[Field] = (
    (Column("WORKER"), lambda report: report.worker),
    (Column("HOST"), lambda report: report.host),
    (Column("STATE", rigid=True), lambda report: report.kind.value),
    (Column("MESSAGES", right=True, rigid=True), lambda report: report.messages or None),
    (Column("SINCE", rigid=True), lambda report: report.since),
    (Column("SEEN", rigid=True, from_width=100), lambda report: report.seen_at),
    (Column("WHY", fold=True), said_why),
)


def lost_parts(found: Losses) -> list[Part]:
    """The parts about killed workers; empty if nothing is lost, waits, or is not covered."""
    facts, reports = lost_facts(found), found.lost.reports
    parts: list[Part] = [Facts("Killed workers", facts)] if facts else []
    return [*parts, table_of(_FIELDS, reports, "Reports of workers")] if reports else parts
