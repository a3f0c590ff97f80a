"""The steps that all ticket handlers share: look for the ticket of the group, or else open one."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from celery_dlq.errors import SettingsError, page
from celery_dlq.model.handling import HandlerLetter, Leave, Ticket
from celery_dlq.redact import hide_known
from celery_dlq.settings.validation import Allowed, number
from celery_dlq.tickets.service import APP, Service
from celery_dlq.tickets.text import TicketText, text_about

logger: logging.Logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TicketHandler(ABC):
    """A repair handler that opens one ticket for each group. Register it with ``once_per_group=True`` and a
    name.

    A worker may be killed after the ticket was opened and before that was stored. The handler is called
    again then, so it looks for the ticket first.

    :raises SettingsError: a value is not allowed. The error has all problems, and no secrets.
    """

    #: ``@dlq.handler`` reads this, and then demands ``once_per_group=True``.
    opens_tickets: ClassVar[bool] = True
    #: The allowed values of a definition, by name.
    allowed: ClassVar[Mapping[str, Allowed]] = {
        "app": APP, "timeout": number(0.05, 300, "seconds"),
    }  # fmt: skip

    #: The name after ``celery -A``, for the commands in the ticket.
    app: str = ""
    #: Time limit in seconds for connecting to the system, and for each wait for bytes.
    timeout: float = 10.0

    def __post_init__(self) -> None:
        problems = [*self._wrong_values(), *self.contradictions()]
        if problems:
            kind = type(self).__name__
            raise SettingsError(
                f"{kind}: {'; '.join(problems)}. See {page('repair-and-escalate')}."
            )

    def __call__(self, letter: HandlerLetter) -> Ticket | Leave:
        """The ticket of the letter's group: an open one that exists in the system, or a new one. A letter
        whose group is known to have a ticket is left.

        :raises HandlerError: the system refuses it, and will again.
        :raises TicketError: the system does not answer, or cannot do it now.
        """
        if letter.ticket is not None:
            return Leave()
        service, mark = self.service(), mark_of(letter.fingerprint)
        found = self.find(service, mark)
        if found is None:
            found = self.open(service, mark, text_about(letter.shown, self.app), letter)
        return Ticket(found)

    def contradictions(self) -> Iterable[str]:
        """Contradictions between the values."""
        return ()

    @abstractmethod
    def service(self) -> Service:
        """The system."""

    @abstractmethod
    def find(self, service: Service, mark: str) -> str | None:
        """The address of the open ticket with this mark; None if no ticket has it."""

    @abstractmethod
    def open(self, service: Service, mark: str, text: TicketText, letter: HandlerLetter) -> str:
        """Open a ticket with this mark; returns its address."""

    def _wrong_values(self) -> Iterator[str]:
        for item in fields(self):
            value, allowed = getattr(self, item.name), self.allowed[item.name]
            if not allowed.accepts(value):
                shown = f" = {value!r}" if item.repr else ""
                yield f"{item.name}{shown} is not {allowed.words}"


def mark_of(fingerprint: str) -> str:
    """The label of a group's tickets in other systems. All of them allow its characters and its length."""
    return f"dlq-{fingerprint}"


def issues_in(service: Service, answer: object) -> list[Mapping[str, Any]]:
    """The objects of a list that a system has sent.

    :raises HandlerError: it is not such a list.
    """
    if not isinstance(answer, list) or not all(isinstance(one, dict) for one in answer):
        raise service.wrong(
            "it did not answer with a list of issues. Is url the address of its API?"
        )
    return answer


def field_of(service: Service, issue: object, name: str) -> str:
    """A text of an object that a system has sent.

    :raises HandlerError: it does not have this text.
    """
    value = issue.get(name) if isinstance(issue, dict) else None
    if not isinstance(value, str) or not value:
        raise service.wrong(f"its answer has no {name}. Is url the address of its API?")
    return value


def warn_of_lost_label(service: Service, mark: str, labels: Collection[object], url: str) -> None:
    """Log a warning if the system has opened a ticket without its label. Some do that if the token may not
    set labels."""
    if mark not in labels:
        logger.warning(
            "%s has not given %s the label %s: allow the token to set labels; without it, a worker that is "
            "killed at the wrong moment leads to a second ticket", service.name, hide_known(url), mark,
        )  # fmt: skip
