"""How long letters and history are kept, as users write it in ``dlq_retention``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from celery_dlq.base.known import names_its_fields
from celery_dlq.errors import SettingsError
from celery_dlq.model.states import CLOSED_STATES
from celery_dlq.settings.validation import refuse
from celery_dlq.store.base import Expiry, HistoryBounds
from celery_dlq.store.filter import Filter

#: The shortest and the longest time for which anything is kept. A record of a failure may wait in the spool
#: of a worker, and would become a new letter if its letter was deleted in the meantime.
SHORTEST, LONGEST = timedelta(days=1), timedelta(days=36_500)

_YEAR = timedelta(days=365)

#: A time span; None for ever.
Age = timedelta | None


@names_its_fields(SettingsError)
@dataclass(frozen=True)
class Keep:
    """How long some closed letters are kept.

    :raises SettingsError: a value that is not allowed. The error names it.
    """

    #: The time since a letter was closed; None for ever.
    age: Age
    _: KW_ONLY
    #: The letters, as far as they are closed; the same filter as that of ``dlq list``.
    where: Filter = field(default_factory=Filter)

    def __post_init__(self) -> None:
        problems = (*_age_problems("age", self.age), *_filter_problems(self.where))
        refuse(repr(self), problems, "retention")

    def expiry(self, now: datetime) -> Expiry:
        """The letters that have been kept long enough at ``now``."""
        return Expiry(where=self.where, before=None if self.age is None else now - self.age)


@names_its_fields(SettingsError)
@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long everything is kept. Open letters are kept for ever.

    :raises SettingsError: a value that is not allowed. The error names it.
    """

    #: How long closed letters are kept. The first one that matches a letter counts; a letter that none
    #: matches is kept for ever.
    letters: Sequence[Keep] = ()
    #: How long operations that ended, their redrives, changes to the messages of closed letters, and the acts
    #: of handlers and automatic redrives are kept.
    history: Age = _YEAR
    #: How long the counts of letters over time are kept, from which trends and rates are drawn.
    arrivals: Age = _YEAR
    #: How long the audit is kept.
    audit: Age = _YEAR

    def __post_init__(self) -> None:
        refuse("dlq_retention", _problems(self), "retention")
        object.__setattr__(self, "letters", tuple(self.letters))

    def expiries(self, now: datetime) -> tuple[Expiry, ...]:
        """The letters that have been kept long enough at ``now``. The first one that matches counts."""
        return tuple(keep.expiry(now) for keep in self.letters)

    def history_bounds(self, now: datetime) -> HistoryBounds:
        """The moments before which history is deleted at ``now``."""
        history, arrivals, audit = (
            None if age is None else now - age for age in (self.history, self.arrivals, self.audit)
        )
        return HistoryBounds(history=history, arrivals=arrivals, audit=audit)

    @property
    def expires(self) -> bool:
        """Whether any letter expires."""
        return any(keep.age is not None for keep in self.letters)


def _problems(retention: Retention) -> Iterator[str]:
    letters = retention.letters
    if not isinstance(letters, (list, tuple)) or not all(isinstance(one, Keep) for one in letters):
        yield f"letters must be a list of celery_dlq.Keep objects, not {letters!r}."
    else:
        yield from _order_problems(letters)
    for name in ("history", "arrivals", "audit"):
        yield from _age_problems(name, getattr(retention, name))


def _order_problems(letters: Sequence[Keep]) -> Iterator[str]:
    """The first entry after which no other can match a letter."""
    for number, keep in enumerate(letters[:-1], 1):
        if not keep.where.restricts or keep.where.states == CLOSED_STATES:
            yield (
                f"Entry {number} of letters matches every closed letter, so the entries after it never "
                "match; put it last."
            )
            return


def _age_problems(name: str, age: Any) -> Iterator[str]:
    if age is None:
        return
    if not isinstance(age, timedelta):
        yield f"{name} must be a timedelta, such as timedelta(days=30), or None, not {age!r}."
    elif not SHORTEST <= age <= LONGEST:
        yield f"{name} must be between {SHORTEST.days} and {LONGEST.days} days, not {age}."


def _filter_problems(where: Any) -> Iterator[str]:
    if not isinstance(where, Filter):
        yield f"where must be a celery_dlq.Filter, not {where!r}."
        return
    still_open = sorted(state.value for state in where.states - CLOSED_STATES)
    if still_open:
        yield (
            f"where names the state {', '.join(still_open)}, and only closed letters expire: resolved or "
            "discarded ones."
        )
    if where.held:
        yield "where.held is about open letters, which never expire."
