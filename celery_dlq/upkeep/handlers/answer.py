"""Calls a handler, and makes what the store needs of its verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from billiard.exceptions import SoftTimeLimitExceeded

from celery_dlq.classify import is_a
from celery_dlq.classify.chain import Budget, Link, reachable, walk
from celery_dlq.errors import HandlerError, NothingChanged, RepairError
from celery_dlq.hiding import hide_letter
from celery_dlq.model.handling import (
    VERDICTS,
    Discard,
    Escalate,
    GroupTicket,
    HandlerLetter,
    HandlerVerdict,
    Redrive,
    Ticket,
    by_handler,
)
from celery_dlq.model.letter import DeadLetter
from celery_dlq.redact import Redactor, safe_message
from celery_dlq.redrive.contents import contents_of
from celery_dlq.redrive.edit import make_edit
from celery_dlq.redrive.payload import accepted_by
from celery_dlq.store.base import Edit
from celery_dlq.upkeep.handlers.definition import Handler
from celery_dlq.worker.failure import is_shutdown, type_name


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of a call."""

    #: None if the handler gave none; then the error says why.
    verdict: HandlerVerdict | None = None
    #: The new message of a redrive; None if it stays.
    edit: Edit | None = None
    #: The contents of the verdict, without secrets.
    detail: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    #: Whether another call may end in another way.
    may_pass: bool = False


class Caller:
    """Calls the handlers of an app.

    :param now: the time by the store's clock.
    """

    def __init__(self, app: Any, redactor: Redactor, now: Callable[[], datetime]) -> None:
        self._app, self._redactor, self._now = app, redactor, now
        accepted = accepted_by(app)
        self._read = lambda stored: contents_of(stored, accepted)
        self._hide = lambda stored: hide_letter(stored, redactor)

    def call(
        self, handler: Handler, stored: DeadLetter, tickets: Sequence[GroupTicket] = ()
    ) -> Answer:
        """The answer of ``handler`` about a letter. Nothing that it raises gets out, except what ends the
        process."""
        letter = HandlerLetter(stored, self._read, self._hide, tickets)
        try:
            verdict = handler.function(letter)
            why_not = _why_not(handler, verdict)
            return self._failed(why_not) if why_not else self._answered(handler, stored, verdict)
        except (Exception, SystemExit) as error:
            if is_shutdown(error):
                raise
            if _is_late(error):
                late = f"it did not end within its timeout of {handler.timeout:g} seconds"
                return self._failed(late, may_pass=True)
            if isinstance(error, (HandlerError, RepairError)):
                return self._failed(str(error))
            text = f"it raised {type_name(type(error))}: {safe_message(error)}"
            return self._failed(text, may_pass=True)

    def _answered(self, handler: Handler, stored: DeadLetter, verdict: HandlerVerdict) -> Answer:
        if isinstance(verdict, Redrive):
            return self._changed(handler, stored, verdict)
        shown = _without_secrets(verdict, self._redactor)
        return Answer(verdict=shown, detail=dict(vars(shown)))

    def _changed(self, handler: Handler, stored: DeadLetter, verdict: Redrive) -> Answer:
        """The answer with the new message, if a part of it was changed."""
        if not verdict.changes:
            return Answer(verdict=verdict)
        who, at = by_handler(handler.name), self._now()
        try:
            edit = make_edit(
                self._app, stored, verdict.changes, self._redactor, who=who, at=at,
                why=f"version {handler.version}",
            )  # fmt: skip
        except NothingChanged:
            return Answer(verdict=verdict)
        except RepairError as error:
            raise HandlerError(f"its Redrive cannot be done: {error}") from error
        return Answer(verdict=verdict, edit=edit, detail={"change": edit.diff})

    def _failed(self, error: str, *, may_pass: bool = False) -> Answer:
        return Answer(error=self._redactor.text(error), may_pass=may_pass)


def _is_late(error: BaseException) -> bool:
    """Whether ``error`` came of the time limit. The limit may cut off a step, which then says that it failed
    itself."""
    behind = walk(Link(error), reachable, Budget())
    return any(is_a(link.exc, SoftTimeLimitExceeded) for link in behind)


def _why_not(handler: Handler, verdict: object) -> str:
    """Why what the handler returned is not a verdict; empty if it is one."""
    if not isinstance(verdict, tuple(VERDICTS.values())):
        named = ", ".join(kind.__name__ for kind in VERDICTS.values())
        return f"it returned {type(verdict).__name__}; return one of {named}"
    if isinstance(verdict, (Ticket, Escalate)) and not handler.once_per_group:
        kind = type(verdict).__name__
        return f"it returned {kind}, which only a handler with once_per_group=True may return"
    return ""


def _without_secrets(verdict: HandlerVerdict, redactor: Redactor) -> HandlerVerdict:
    if isinstance(verdict, Discard):
        return Discard(redactor.text(verdict.reason))
    if isinstance(verdict, Escalate):
        return Escalate(to=verdict.to, why=redactor.text(verdict.why))
    return verdict
