"""Numbers of the closed letters that are kept: in the store, and in the archive."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from typing import Any

from celery_dlq.base.codec import read_record, record_of
from celery_dlq.store.filter import Filter

_DAY_S = 86_400.0

#: Upper bounds, in seconds, of the ages that closed letters are counted by. The age of a closed letter is the
#: time since it was closed.
CLOSED_AGES: tuple[float, ...] = (
    _DAY_S, 7 * _DAY_S, 30 * _DAY_S, 90 * _DAY_S, 365 * _DAY_S, math.inf,
)  # fmt: skip

#: The times ahead for which letters that will expire are counted.
DAY, WEEK = timedelta(days=1), timedelta(days=7)


@dataclass(frozen=True, kw_only=True)
class Pile:
    """Some letters."""

    letters: int
    #: Bytes of their messages, arguments and tracebacks, as they are before the database compresses them. On
    #: SQLite, texts are counted in characters.
    size: int

    def __add__(self, other: Pile) -> Pile:
        return Pile(letters=self.letters + other.letters, size=self.size + other.size)


NO_LETTERS = Pile(letters=0, size=0)

#: Closed letters by age: each of :data:`CLOSED_AGES`, and the letters.
Ages = Mapping[float, Pile]


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Closed letters for which the same expiry counts."""

    #: All of them.
    ages: Ages
    #: The letters that have expired.
    expired: Pile
    #: How many expire within the next day, and within the next week.
    within_day: int
    within_week: int
    #: When the letter that was closed first was closed; None without letters.
    oldest_closed_at: datetime | None

    @classmethod
    def none(cls) -> Kept:
        """No letters."""
        return cls(
            ages=dict.fromkeys(CLOSED_AGES, NO_LETTERS), expired=NO_LETTERS, within_day=0,
            within_week=0, oldest_closed_at=None,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form. The ages are in their order, because JSON has no infinity."""
        ages = [vars(self.ages[bound]) for bound in CLOSED_AGES]
        return {**record_of(self, "ages"), "ages": ages}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Kept:
        """The inverse of :meth:`to_dict`."""
        piles = (Pile(**pile) for pile in data["ages"])
        return read_record(cls, {**data, "ages": dict(zip(CLOSED_AGES, piles, strict=True))})

    @property
    def every(self) -> Pile:
        """The letters of all ages."""
        return sum(self.ages.values(), NO_LETTERS)

    def __add__(self, other: Kept) -> Kept:
        closed = [one.oldest_closed_at for one in (self, other) if one.oldest_closed_at]
        return Kept(
            ages={bound: pile + other.ages[bound] for bound, pile in self.ages.items()},
            expired=self.expired + other.expired,
            within_day=self.within_day + other.within_day,
            within_week=self.within_week + other.within_week,
            oldest_closed_at=min(closed, default=None),
        )


@dataclass(frozen=True, kw_only=True)
class Holding:
    """The closed letters for which one entry of ``dlq_retention`` counts."""

    #: None for the letters that no entry matches, which are kept for ever.
    where: Filter | None
    #: How long they are kept after they were closed; None for ever.
    age: timedelta | None
    kept: Kept

    @property
    def next_expires_at(self) -> datetime | None:
        """When the first letter expires, or has expired; None if no letter ever does."""
        oldest = self.kept.oldest_closed_at
        return None if oldest is None or self.age is None else oldest + self.age


@dataclass(frozen=True, kw_only=True)
class RoundReport:
    """The findings and deeds of the last round of retention that came to its end."""

    ended_at: datetime
    #: Letters that it deleted, or moved into the archive.
    removed: int
    #: The letters that it left in the store: for each entry of ``dlq_retention``, and then all others.
    holdings: tuple[Holding, ...]

    @property
    def kept(self) -> Kept:
        """All closed letters."""
        return reduce(Kept.__add__, (one.kept for one in self.holdings), Kept.none())

    @property
    def next_expires_at(self) -> datetime | None:
        """When the first letter expires, or has expired; None if no letter ever does."""
        moments = [one.next_expires_at for one in self.holdings]
        return min((one for one in moments if one is not None), default=None)

    def lag(self, now: datetime) -> timedelta:
        """How long ago the first letter expired that should be gone; zero if there is none. Letters that were
        deleted or reopened since the round still count."""
        expires_at = self.next_expires_at
        return timedelta() if expires_at is None else max(timedelta(), now - expires_at)


@dataclass(frozen=True, kw_only=True)
class ArchiveTotals:
    """The letters that a store has archived."""

    segments: int
    letters: int
    #: Bytes of the files of the segments.
    size: int
    #: When the last segment was made; None without segments.
    last_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """The findings of the last check of the archive."""

    checked_at: datetime
    #: Whole segments, and their letters and bytes.
    segments: int
    letters: int
    size: int
    #: Problems because of which letters cannot be read, and others.
    damaged: int
    harmless: int


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """The closed letters that are kept, as far as they are known without counting them."""

    #: None before the first round.
    round: RoundReport | None
    archive: ArchiveTotals
    #: None if the archive was never checked.
    check: CheckReport | None
