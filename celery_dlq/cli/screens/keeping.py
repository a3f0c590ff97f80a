"""The part of ``dlq stats`` about closed letters."""

from __future__ import annotations

from datetime import datetime

from celery_dlq.cli.screens.render import Column, Facts, Part, Table
from celery_dlq.store.keeping import Keeping
from celery_dlq.view.keeping import archive_facts, named_ages, retention_facts
from celery_dlq.view.text import byte_size


def keeping_parts(found: Keeping, now: datetime) -> list[Part]:
    """The parts about closed letters, as the last round of retention has left them; empty before it."""
    parts: list[Part] = []
    if found.round is not None:
        ages = [
            (one.name, one.pile.letters, byte_size(one.pile.size))
            for one in named_ages(found.round.kept.ages)
        ]
        parts.append(Facts("Retention", retention_facts(found.round, now)))
        parts += [Table(_AGE_COLUMNS, ages)] if ages else []
    archive = archive_facts(found)
    return [*parts, Facts("Archive", archive)] if archive else parts


_AGE_COLUMNS = (
    Column("SINCE CLOSED"),
    Column("LETTERS", right=True, rigid=True),
    Column("SIZE", right=True, rigid=True),
)
