"""The samples about messages of killed workers, as workers report them to the store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from celery_dlq.metrics import families
from celery_dlq.metrics.families import Family
from celery_dlq.metrics.labels import Labels
from celery_dlq.store.lost import Lost, ReportKind, messages_in

_OF_KILLED = (ReportKind.STUCK, ReportKind.WAITING)


def lost_samples(found: Lost, now: datetime) -> Iterator[tuple[Family, dict[Labels, float]]]:
    """Each metric, and its samples by labels.

    :param now: the time by the clock of the store.
    """
    yield families.LEFT, {(kind.value,): messages_in(found.of(kind)) for kind in _OF_KILLED}
    yield families.LEFT_AGE, {(kind.value,): _age_s(found, kind, now) for kind in _OF_KILLED}
    yield families.UNCOVERED, {(): len(found.of(ReportKind.UNCOVERED))}


def _age_s(found: Lost, kind: ReportKind, now: datetime) -> float:
    ages = [(now - one.since).total_seconds() for one in found.of(kind)]
    # The clock of that machine may be ahead.
    return max(0.0, *ages) if ages else 0.0
