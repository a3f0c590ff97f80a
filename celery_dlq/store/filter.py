"""Which letters are meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from celery_dlq.errors import FilterError
from celery_dlq.states import OPEN_STATES, Reason, State


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which letters are meant. Empty fields do not restrict; all given ones must hold.

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
    #: The id of an operation that they were in.
    operation: str | None = None
    #: Bounds of the last failure: since inclusive, until exclusive.
    since: datetime | None = None
    until: datetime | None = None
    worker: str | None = None
    #: Text in message, exception type, task, or displayed arguments; case does not count (SQLite
    #: knows the case of ASCII letters only).
    search: str | None = None

    def __post_init__(self) -> None:
        if self.since and self.until and self.since >= self.until:
            raise FilterError(
                f"--since {self.since.isoformat()} is not before --until {self.until.isoformat()}; "
                "swap them or give only one."
            )

    @property
    def wanted_states(self) -> frozenset[State]:
        """The states asked for, the open ones when none was named."""
        return self.states or OPEN_STATES

    @property
    def restricts(self) -> bool:
        """Whether anything narrows the letters down."""
        return bool(self.given)

    @property
    def given(self) -> frozenset[str]:
        """The names of the fields that restrict."""
        return frozenset(item.name for item in fields(self) if getattr(self, item.name))

    @property
    def indexed(self) -> Filter:
        """What of it the indexes know. For the rest, one letter after the other is looked at."""
        return replace(self, search=None, worker=None)

    def only(self, state: State) -> Filter:
        """The same letters, as far as they are in ``state``."""
        return replace(self, states=frozenset({state}))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form of what restricts."""
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: _plain(value) for name, value in given.items() if value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Filter:
        """The inverse of :meth:`to_dict`."""
        return cls(**{name: _READ.get(name, _same)(value) for name, value in data.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(item.value for item in value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return value.value if isinstance(value, Reason) else value


def _same(value: Any) -> Any:
    return value


_READ: Mapping[str, Callable[[Any], Any]] = {
    "ids": tuple,
    "reason": Reason,
    "without_reasons": lambda names: frozenset(map(Reason, names)),
    "states": lambda names: frozenset(map(State, names)),
    "since": datetime.fromisoformat,
    "until": datetime.fromisoformat,
}
