"""A handler, checked when it is defined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from celery_dlq.errors import SettingsError, page
from celery_dlq.hooks.event import find_hook
from celery_dlq.model.handling import HandlerLetter, HandlerVerdict
from celery_dlq.settings.validation import BOOLEAN, TEXT, Allowed, number, whole
from celery_dlq.store.base import Filter, Scope
from celery_dlq.upkeep.automation.definition import problems_of

HandlerFunction = Callable[[HandlerLetter], HandlerVerdict]

_ALLOWED: Mapping[str, Allowed] = {
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
        problems = [*problems_of(self, _ALLOWED), *self._missing()]
        if problems:
            shown = self.name if isinstance(self.name, str) else repr(self.name)
            see = page("repair-and-escalate")
            raise SettingsError(f"Handler {shown} is not valid. {' '.join(problems)} See {see}.")
        find_hook(self.function)

    @property
    def scope(self) -> Scope:
        """The letters that it gets, as the store chooses them."""
        return Scope(
            name=self.name, version=self.version, where=self.where,
            once_per_group=self.once_per_group,
        )  # fmt: skip

    def _missing(self) -> Iterator[str]:
        # Without this check it would open its tickets first, and its verdicts would be refused afterwards.
        if getattr(self.function, "opens_tickets", False) is True and not self.once_per_group:
            kind = type(self.function).__name__
            yield f"{kind} opens one ticket for each group; give once_per_group=True."
