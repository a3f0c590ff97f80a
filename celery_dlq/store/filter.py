"""A filter chooses letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from celery_dlq.errors import FilterError
from celery_dlq.known import names_its_fields
from celery_dlq.model.states import OPEN_STATES, Reason, State


@names_its_fields(FilterError)
@dataclass(frozen=True, kw_only=True)
class Filter:
    """A choice of letters. Empty fields do not restrict it; a letter has to match all others.

    ``task`` and ``exception`` take a full dotted name or its last part; ``group`` and ``worker``
    take a whole value or its beginning.
    """

    ids: tuple[str, ...] = ()
    task: str | None = None
    exception: str | None = None
    reason: Reason | None = None
    #: Reasons left out.
    without_reasons: frozenset[Reason] = frozenset()
    queue: str | None = None
    #: Empty means the open states.
    states: frozenset[State] = frozenset()
    group: str | None = None
    #: The name of a route that the last failure is on.
    route: str | None = None
    #: The id of an operation that the letters were in.
    operation: str | None = None
    #: Bounds of the last failure: since inclusive, until exclusive.
    since: datetime | None = None
    until: datetime | None = None
    worker: str | None = None
    #: Only letters that no automatic redrive touches again.
    held: bool = False
    #: Text in message, exception type, task, or displayed arguments; case does not count (SQLite
    #: knows the case of ASCII letters only).
    search: str | None = None

    def __post_init__(self) -> None:
        if self.since and self.until and self.since >= self.until:
            raise FilterError(
                f"--since {self.since.isoformat()} is not before --until {self.until.isoformat()}; "
                "swap them or give only one."
            )

    def before(self, moment: datetime) -> Filter:
        """The same filter, without letters that failed at ``moment`` or later."""
        return replace(self, until=min(self.until or moment, moment))

    @property
    def wanted_states(self) -> frozenset[State]:
        """The states that are asked for; the open ones if none is named."""
        return self.states or OPEN_STATES

    @property
    def restricts(self) -> bool:
        """Whether any field restricts the letters."""
        return bool(self.given)

    @property
    def given(self) -> frozenset[str]:
        """The names of the fields that restrict."""
        return frozenset(item.name for item in fields(self) if getattr(self, item.name))

    @property
    def indexed(self) -> Filter:
        """The same filter without the fields that no index covers. For those, letters are searched one after
        the other."""
        return replace(self, search=None, worker=None)

    def only(self, state: State) -> Filter:
        """The same filter, for letters in ``state`` only."""
        return replace(self, states=frozenset({state}))

    def to_dict(self) -> dict[str, Any]:
        """The fields that restrict, in JSON-able form."""
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: _plain(value) for name, value in given.items() if value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Filter:
        """The inverse of :meth:`to_dict`."""
        read = {name: _READ[name](value) for name, value in data.items() if name in _READ}
        return cls(**{**data, **read})


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(item.value for item in value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return value.value if isinstance(value, Reason) else value


_READ: Mapping[str, Callable[[Any], Any]] = {
    "ids": tuple,
    "reason": Reason,
    "without_reasons": lambda names: frozenset(map(Reason, names)),
    "states": lambda names: frozenset(map(State, names)),
    "since": datetime.fromisoformat,
    "until": datetime.fromisoformat,
}
