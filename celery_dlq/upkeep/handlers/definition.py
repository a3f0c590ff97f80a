"""A handler, checked when it is defined."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from celery_dlq.errors import SettingsError, page
from celery_dlq.hooks.event import find_hook
from celery_dlq.model.handling import HandlerLetter, HandlerVerdict
from celery_dlq.model.states import State
from celery_dlq.settings.validation import BOOLEAN, TEXT, Allowed, number, whole
from celery_dlq.store.base import Filter, HandlerScope

HandlerFunction = Callable[[HandlerLetter], HandlerVerdict]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")

_ALLOWED: Mapping[str, Allowed] = {
    "name": Allowed(
        "a name of 1 to 100 letters, digits, dots, - and _",
        lambda value: isinstance(value, str) and bool(_NAME.fullmatch(value)),
    ),
    "where": Allowed("a celery_dlq.Filter", lambda value: isinstance(value, Filter)),
    "all": BOOLEAN,
    "timeout": number(1, 3_600, "seconds"),
    "version": Allowed(
        "a string of 1 to 64 characters",
        lambda value: isinstance(value, str) and bool(value.strip()) and len(value) <= 64,
    ),
    "per_hour": whole(1, 1_000_000),
    "once_per_group": BOOLEAN,
    "queue": Allowed(
        "a non-empty string, or None", lambda value: value is None or TEXT.accepts(value)
    ),
}


@dataclass(frozen=True, kw_only=True)
class Handler:
    """A function of the user, and which dead letters it gets.

    :raises SettingsError: a value is not allowed, or the values contradict each other. The error has all
        problems.
    """

    name: str
    function: HandlerFunction
    where: Filter
    #: Whether it gets every dead letter; ``where`` is empty then.
    all: bool
    #: Seconds that a call may take.
    timeout: float
    #: It is called once for each failure of a letter and each version.
    version: str
    #: How often it is called within an hour.
    per_hour: int
    #: Whether it gets one letter of each group. Only such a handler may return a ticket or an escalation.
    once_per_group: bool
    #: The queue of its messages; None means ``dlq_handler_queue``.
    queue: str | None = None

    def __post_init__(self) -> None:
        problems = [*self._wrong_values(), *self._contradictions(), *self._missing()]
        if problems:
            shown = self.name if isinstance(self.name, str) else repr(self.name)
            see = page("repair-and-escalate")
            raise SettingsError(f"Handler {shown}: {'; '.join(problems)}. See {see}.")
        find_hook(self.function)

    @property
    def scope(self) -> HandlerScope:
        """The letters that it gets, as the store chooses them."""
        return HandlerScope(
            name=self.name, version=self.version, where=self.where,
            once_per_group=self.once_per_group,
        )  # fmt: skip

    def _wrong_values(self) -> list[str]:
        values: dict[str, Any] = {name: getattr(self, name) for name in _ALLOWED}
        return [
            f"{name} = {value!r} is not {_ALLOWED[name].words}"
            for name, value in values.items()
            if not _ALLOWED[name].accepts(value)
        ]

    def _missing(self) -> Iterator[str]:
        # Without this check it would open its tickets first, and its verdicts would be refused afterwards.
        if getattr(self.function, "opens_tickets", False) is True and not self.once_per_group:
            kind = type(self.function).__name__
            yield f"{kind} opens one ticket for each group; give once_per_group=True"

    def _contradictions(self) -> list[str]:
        if not isinstance(self.where, Filter):
            return []
        problems = []
        if not self.where.restricts and not self.all:
            problems.append("where matches every letter; restrict it, or give all=True")
        if self.where.restricts and self.all:
            problems.append("all=True and where contradict each other; leave one of them out")
        others = sorted(state.value for state in self.where.states - {State.DEAD})
        if others:
            problems.append(
                f"where.states has {', '.join(others)}; handlers get dead letters only, so leave "
                "it out"
            )
        return problems
