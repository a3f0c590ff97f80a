"""Handlers: the letters that they get, the verdicts that they return, and the record of what each automation
did about a letter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import Enum
from functools import cached_property
from typing import Any

from celery_dlq.base.redact import hide_known
from celery_dlq.errors import HandlerError
from celery_dlq.model.letter import Attempt, DeadLetter
from celery_dlq.model.states import Reason

#: The name of the Celery task that calls handlers.
HANDLE_TASK = "celery_dlq.handle"

#: How often a handler is called for one failure of a letter if it raises, takes too long, or kills its
#: worker.
TRIES = 3

#: The beginnings of a ticket's address. A browser would run an address of another kind.
ADDRESSES = ("https://", "http://")


class HandlingState(str, Enum):
    """The state of a handling: of one automation and one failure of a letter."""

    #: A message for it was sent, or will be.
    QUEUED = "queued"
    #: A worker calls the handler.
    RUNNING = "running"
    #: The handler's verdict was carried out, or an automatic redrive chose the letter.
    DONE = "done"
    #: The handler raised, took too long, or killed its worker, as often as it is tried.
    FAILED = "failed"
    #: The letter changed first, or the handler got another version. Nothing was done.
    STALE = "stale"
    #: An automatic redrive in shadow mode would have sent the letter. Nothing was done.
    SHADOW = "shadow"


#: The states that a handling leaves by itself.
LIVE = frozenset({HandlingState.QUEUED, HandlingState.RUNNING})


class TicketKind(str, Enum):
    """The ways in which a group is followed up: by a ticket, or by a person."""

    TICKET = "ticket"
    ESCALATION = "escalation"


@dataclass(frozen=True, kw_only=True)
class Redrive:
    """Send the message back, with other contents where they are given. A part that is None does not change.

    :raises HandlerError: a part, or the name of the repair, has the wrong type.
    """

    args: Sequence[Any] | None = None
    kwargs: Mapping[str, Any] | None = None
    headers: Mapping[str, Any] | None = None
    #: The name of a repair of the app (``@dlq.repair``), which then changes these contents.
    repair: str | None = None

    def __post_init__(self) -> None:
        if self.repair is not None:
            _check_text(self, "repair")
        if self.args is not None and not isinstance(self.args, (list, tuple)):
            raise HandlerError(f"Redrive(args={type(self.args).__name__}): give a list, or None.")
        for name in ("kwargs", "headers"):
            part = getattr(self, name)
            if part is not None and not isinstance(part, Mapping):
                raise HandlerError(f"Redrive({name}={type(part).__name__}): give a dict, or None.")

    @property
    def changes(self) -> dict[str, Any]:
        """The parts that are given, by name."""
        parts = {"args": self.args, "kwargs": self.kwargs, "headers": self.headers}
        return {name: value for name, value in parts.items() if value is not None}


@dataclass(frozen=True)
class Discard:
    """Close the letter for good, for a reason.

    :raises HandlerError: the reason is empty.
    """

    reason: str

    def __post_init__(self) -> None:
        _check_text(self, "reason")


@dataclass(frozen=True)
class Ticket:
    """Note the address of the ticket that the handler has made for the letter's group, without secrets.

    :raises HandlerError: it does not begin with ``https://`` or ``http://``.
    """

    url: str

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or not self.url.startswith(ADDRESSES):
            raise HandlerError(
                f"Ticket(url={self.url!r}): give an address that begins with https:// or http://."
            )
        # It is stored, shown and logged, so a password or a token in it is hidden from the start.
        object.__setattr__(self, "url", hide_known(self.url))


@dataclass(frozen=True)
class Escalate:
    """Note that the letter's group needs a person or a team.

    :raises HandlerError: one of the texts is empty.
    """

    to: str
    why: str

    def __post_init__(self) -> None:
        _check_text(self, "to")
        _check_text(self, "why")


@dataclass(frozen=True)
class Leave:
    """Do nothing. The letter goes to the next handler that matches it, and stays for people."""


HandlerVerdict = Redrive | Discard | Ticket | Escalate | Leave

#: The verdicts by the names that are stored and shown.
VERDICTS: Mapping[str, type[HandlerVerdict]] = {
    "redrive": Redrive, "discard": Discard, "ticket": Ticket, "escalate": Escalate, "leave": Leave,
}  # fmt: skip


#: Celery's own tasks that carry tasks of the user. Its others carry none.
CARRIERS = tuple(
    f"celery.{name}" for name in ("map", "starmap", "chunks", "group", "chord", "chord_unlock")
)


def may_have_letters(task: str) -> bool:
    """Whether there may be letters of the task of this name."""
    return is_of_user(task) or task in CARRIERS


def is_of_user(task: str) -> bool:
    """Whether the task of this name is the user's, and not Celery's or ours."""
    return not task.startswith("celery.") and task != HANDLE_TASK


def name_of(verdict: HandlerVerdict) -> str:
    """The name of a verdict, such as ``redrive``."""
    return next(name for name, kind in VERDICTS.items() if isinstance(verdict, kind))


@dataclass(frozen=True, kw_only=True)
class Handling:
    """One automation and one failure of a letter. There is at most one for each version of a handler, and for
    each run of an automatic redrive."""

    id: int
    task_id: str
    #: As of then.
    fingerprint: str
    #: The automation.
    name: str
    #: Of the handler; or the id of the run of an automatic redrive, which is that of its operation.
    version: str
    #: The letter's last failure when it was chosen.
    failed_at: datetime
    state: HandlingState
    #: One of :data:`VERDICTS`; empty until it is done.
    verdict: str = ""
    #: The contents of the verdict, without secrets: a redrive's ``change`` as lines of a diff, a ``reason``,
    #: a ``url``, ``to`` and ``why``.
    detail: Mapping[str, Any]
    #: Why it failed, will be tried again, or is stale.
    error: str = ""
    #: How often the handler was called; 0 for an automatic redrive.
    tries: int
    queued_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    #: The worker that called the handler last.
    worker: str = ""
    #: The operation that sends the letter back.
    operation: str = ""


@dataclass(frozen=True, kw_only=True)
class GroupTicket:
    """The ticket or the escalation of a group. A group has at most one of each."""

    fingerprint: str
    kind: TicketKind
    #: The address of a ticket; empty for an escalation.
    url: str = ""
    #: Who it was escalated to, and why; empty for a ticket.
    to: str = ""
    why: str = ""
    handler: str
    at: datetime


def _check_text(verdict: object, field: str) -> None:
    value = getattr(verdict, field)
    if not isinstance(value, str) or not value.strip():
        raise HandlerError(f"{type(verdict).__name__}({field}={value!r}): give a text.")


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
    #: The ticket and the escalation of the letter's group.
    tickets: Sequence[GroupTicket] = ()
    #: The id of the task.
    task_id: str = field(init=False, repr=False)
    #: The dotted name of the task.
    task: str = field(init=False, repr=False)
    #: The queue that the message came from.
    queue: str = field(init=False, repr=False)
    #: Why it died.
    reason: Reason = field(init=False, repr=False)
    #: The dotted name of the exception's type.
    exception_type: str = field(init=False, repr=False)
    #: The exception's message.
    message: str = field(init=False, repr=False)
    #: The traceback of the last failure.
    traceback: str = field(init=False, repr=False)
    #: Its group.
    fingerprint: str = field(init=False, repr=False)
    #: The name of its route; empty if it is on none.
    route: str = field(init=False, repr=False)
    #: Every failed run, oldest first.
    attempts: tuple[Attempt, ...] = field(init=False, repr=False)
    #: When it failed last.
    last_failed_at: datetime = field(init=False, repr=False)
    #: How often it was sent back.
    redrive_count: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for one in fields(self):
            if not one.init:
                object.__setattr__(self, one.name, getattr(self.stored, one.name))

    @cached_property
    def shown(self) -> DeadLetter:
        """The whole letter without secrets, for other systems and people. The body of its message is
        unchanged."""
        return self.hide(self.stored)

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
