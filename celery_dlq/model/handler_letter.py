"""A dead letter as a handler gets it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from celery_dlq.model.handling import GroupTicket, TicketKind
from celery_dlq.model.letter import Attempt, DeadLetter
from celery_dlq.model.states import Reason


@dataclass(frozen=True)
class HandlerLetter:
    """A dead letter as a handler gets it. It is a copy: to change it, return a verdict."""

    #: The whole letter as it is stored. Its ``args`` and ``kwargs`` are display copies, in which secrets are
    #: hidden; those here are the real ones.
    stored: DeadLetter = field(repr=False)
    #: Reads ``args`` and ``kwargs`` of the message.
    read: Callable[[DeadLetter], Mapping[str, Any]] = field(repr=False)
    #: Makes the copy without secrets.
    hide: Callable[[DeadLetter], DeadLetter] = field(repr=False)
    #: What the letter's group was given.
    tickets: Sequence[GroupTicket] = ()

    @cached_property
    def shown(self) -> DeadLetter:
        """The whole letter without secrets, for other systems and people. The body of its message is
        unchanged."""
        return self.hide(self.stored)

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return self.stored.task_id

    @property
    def task(self) -> str:
        """The dotted name of the task."""
        return self.stored.task

    @property
    def queue(self) -> str:
        """The queue that the message came from."""
        return self.stored.queue

    @property
    def reason(self) -> Reason:
        """Why it died."""
        return self.stored.reason

    @property
    def exception_type(self) -> str:
        """The dotted name of the exception's type."""
        return self.stored.exception_type

    @property
    def message(self) -> str:
        """The exception's message."""
        return self.stored.message

    @property
    def traceback(self) -> str:
        """The traceback of the last failure."""
        return self.stored.traceback

    @property
    def fingerprint(self) -> str:
        """Its group."""
        return self.stored.fingerprint

    @property
    def route(self) -> str:
        """The name of its route; empty if it is on none."""
        return self.stored.route

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Every failed run, oldest first."""
        return self.stored.attempts

    @property
    def last_failed_at(self) -> datetime:
        """When it failed last."""
        return self.stored.last_failed_at

    @property
    def redrive_count(self) -> int:
        """How often it was sent back."""
        return self.stored.redrive_count

    @property
    def args(self) -> list[Any]:
        """The arguments, deserialised when they are first needed.

        :raises PayloadError: the message cannot be read.
        """
        return list(self._contents["args"])

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments, deserialised when they are first needed.

        :raises PayloadError: the message cannot be read.
        """
        return dict(self._contents["kwargs"])

    @property
    def headers(self) -> dict[str, Any]:
        """The headers of the message."""
        return dict(self.stored.envelope.headers)

    @property
    def ticket(self) -> GroupTicket | None:
        """The ticket of its group, if it has one."""
        return self._given(TicketKind.TICKET)

    @property
    def escalation(self) -> GroupTicket | None:
        """The escalation of its group, if it has one."""
        return self._given(TicketKind.ESCALATION)

    @cached_property
    def _contents(self) -> Mapping[str, Any]:
        return self.read(self.stored)

    def _given(self, kind: TicketKind) -> GroupTicket | None:
        return next((one for one in self.tickets if one.kind is kind), None)
