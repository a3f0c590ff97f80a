"""The samples about closed letters and the archive."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime

from celery_dlq.metrics import families
from celery_dlq.metrics.families import Family
from celery_dlq.metrics.labels import Labels
from celery_dlq.store.keeping import CheckReport, Keeping, RoundReport

#: A metric and its samples by labels.
Samples = tuple[Family, dict[Labels, float]]

_DAY_S = 86_400


def keeping_samples(found: Keeping, now: datetime) -> Iterator[Samples]:
    """The samples of what is kept of closed letters. A metric without a value has none.

    :param now: the time by the clock of the store.
    """
    totals = found.archive
    yield _one(families.SEGMENTS, totals.segments)
    yield _one(families.ARCHIVED, totals.letters)
    yield _one(families.ARCHIVED_BYTES, totals.size)
    if totals.closed_at is not None:
        yield _one(families.ARCHIVED_AT, totals.closed_at.timestamp())
    if found.round is not None:
        yield from _of_round(found.round, now)
    if found.check is not None:
        yield from _of_check(found.check)


def _of_round(found: RoundReport, now: datetime) -> Iterator[Samples]:
    kept = found.kept
    names = {_age(bound): pile for bound, pile in kept.ages.items()}
    yield families.CLOSED, {(name,): pile.letters for name, pile in names.items()}
    yield families.CLOSED_BYTES, {(name,): pile.size for name, pile in names.items()}
    yield families.EXPIRING, {("1d",): kept.within_day, ("7d",): kept.within_week}
    yield _one(families.RETENTION_AT, found.ended_at.timestamp())
    yield _one(families.RETENTION_LAG, found.lag(now).total_seconds())


def _of_check(found: CheckReport) -> Iterator[Samples]:
    yield _one(families.VERIFIED_AT, found.checked_at.timestamp())
    yield _one(families.DAMAGED, found.damaged)


def _one(family: Family, value: float) -> Samples:
    return family, {(): value}


def _age(bound: float) -> str:
    return f"{bound / _DAY_S:g}d" if math.isfinite(bound) else "more"
