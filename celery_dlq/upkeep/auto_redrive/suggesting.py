"""Finds the groups whose redrives succeed, and from which age of the failure on."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from celery_dlq.model.operation import PastRedrive

#: Redrives that a suggestion needs, and the share of them that must have succeeded; by default.
LEAST, SHARE = 20, 0.9
#: How far back redrives are read, in days by default, and how many are read at most.
DAYS, MOST = 90, 100_000

#: Ages are rounded down to whole days, hours or minutes if they have at least two of them, and otherwise to
#: seconds, so that they can be said in one word.
_UNITS_S = (86_400, 3_600, 60)


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """How many redrives ended, and how many of them succeeded."""

    redrives: int
    succeeded: int

    @property
    def share(self) -> float:
        """The share of successes; 0 without redrives."""
        return self.succeeded / self.redrives if self.redrives else 0.0


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """A group whose redrives succeed when its failures are old enough."""

    fingerprint: str
    task: str
    #: The age of the failure, in seconds.
    after_s: int
    #: The redrives of failures that were at least that old, and of younger ones.
    older: Outcomes
    younger: Outcomes


def suggest(past: Iterable[PastRedrive], *, least: int, share: float) -> list[Suggestion]:
    """For each group, the lowest age from which on at least ``least`` redrives ended, and at least ``share``
    of them succeeded. Groups without such an age are left out. The group with the most redrives comes
    first."""
    groups: dict[str, list[PastRedrive]] = defaultdict(list)
    for redrive in past:
        groups[redrive.cause].append(redrive)
    found = [
        suggestion
        for redrives in groups.values()
        if (suggestion := _suggestion(redrives, least, share)) is not None
    ]
    return sorted(found, key=lambda one: (-one.older.redrives, one.fingerprint))


def _suggestion(redrives: Sequence[PastRedrive], least: int, share: float) -> Suggestion | None:
    in_order = sorted(redrives, key=lambda redrive: redrive.age_s)
    ages = [redrive.age_s for redrive in in_order]
    # The number of successes among the first 0, 1, 2 ... redrives.
    succeeded = [0]
    for redrive in in_order:
        succeeded.append(succeeded[-1] + redrive.has_succeeded)
    for after_s in _candidates(ages):
        younger = bisect_left(ages, after_s)
        older = Outcomes(redrives=len(ages) - younger, succeeded=succeeded[-1] - succeeded[younger])
        if older.redrives < least:
            return None
        if older.share >= share:
            return Suggestion(
                fingerprint=in_order[0].cause,
                task=in_order[-1].task,
                after_s=after_s,
                older=older,
                younger=Outcomes(redrives=younger, succeeded=succeeded[younger]),
            )
    return None


def _candidates(ages: Sequence[float]) -> Iterator[int]:
    """The rounded ``ages``, which are in order. The lowest one is not below the lowest age by more than its
    unit: nothing is known of redrives of younger failures."""
    last = -1
    for age in ages:
        rounded = _rounded(age)
        if rounded > last:
            yield rounded
            last = rounded


def _rounded(age_s: float) -> int:
    for unit in _UNITS_S:
        if age_s >= 2 * unit:
            return int(age_s // unit) * unit
    return int(age_s)
