"""Limits on labels: a monitor keeps each set of labels for ever, and a failing deployment may create
many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from celery_dlq.redact import safe_text

#: The most sets of labels that one metric may have; all others are added up.
MOST_SETS = 500

#: The value of each label of that sum.
OTHER = "other"

#: The value of an unknown label, because Prometheus treats an empty value as a missing label.
NONE = "none"

Labels = tuple[str, ...]


@dataclass(frozen=True)
class Sample:
    """A value, and when its labels were first seen."""

    labels: Labels
    value: float
    first_seen_at: datetime


def by_size(samples: Iterable[Sample], most: int = MOST_SETS) -> dict[Labels, float]:
    """The sum of each set of labels; beyond ``most`` sets, only the largest keep their labels. For
    gauges."""
    return _bounded(samples, most, lambda one: (-one.value, one.labels))


def by_age(samples: Iterable[Sample], most: int = MOST_SETS) -> dict[Labels, float]:
    """The sum of each set of labels; beyond ``most`` sets, only the oldest keep their labels. For
    counters: no set loses its labels to a newer one, so neither its value nor the sum of the others ever
    falls."""
    return _bounded(samples, most, lambda one: (one.first_seen_at, one.labels))


def _bounded(
    samples: Iterable[Sample], most: int, rank: Callable[[Sample], object]
) -> dict[Labels, float]:
    sums = _summed(samples)
    if len(sums) <= most:
        return {one.labels: one.value for one in sums.values()}
    ranked: list[Sample] = sorted(sums.values(), key=rank)  # type: ignore[arg-type]
    kept = {one.labels: one.value for one in ranked[:most]}
    rest = (OTHER,) * len(ranked[0].labels)
    kept[rest] = kept.get(rest, 0) + sum(one.value for one in ranked[most:])
    return kept


def _summed(samples: Iterable[Sample]) -> Mapping[Labels, Sample]:
    sums: dict[Labels, Sample] = {}
    for one in samples:
        labels = tuple(safe_text(label) or NONE for label in one.labels)
        known = sums.get(labels)
        value, first = one.value, one.first_seen_at
        if known is not None:
            value, first = known.value + value, min(known.first_seen_at, first)
        sums[labels] = Sample(labels, value, first)
    return sums
