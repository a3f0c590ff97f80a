"""Hides secrets in stored values before they are shown. The body of a message is not changed; screens that
show it say so."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, TypeVar, cast

from celery_dlq.base.redact import REDACTED, Redactor
from celery_dlq.errors import RepairError
from celery_dlq.model.assignment import Assignment, parse_assignment
from celery_dlq.model.automation import AutoStatus
from celery_dlq.model.group import Group
from celery_dlq.model.handling import Handling
from celery_dlq.model.headers import ATTEMPTS_HEADER
from celery_dlq.model.letter import DeadLetter, Envelope
from celery_dlq.model.operation import Sending
from celery_dlq.model.request import Request
from celery_dlq.store.base import AuditRow, Change, Filter, Operation

#: Headers that repeat, as one text, values that are shown elsewhere: Celery's copies of the arguments, and
#: the errors of earlier attempts.
_COPIES = ("argsrepr", "kwargsrepr", ATTEMPTS_HEADER)

T = TypeVar("T")


def hide_letter(letter: DeadLetter, redactor: Redactor) -> DeadLetter:
    """``letter`` without secrets, except in its body. The redactor's current list also applies to letters
    that an earlier version stored."""
    return letter.with_(
        message=redactor.text(letter.message),
        traceback=redactor.traceback(letter.traceback),
        log=redactor.text(letter.log),
        explanation=_hide(letter.explanation, redactor, "evidence"),
        attempts=tuple(
            _hide(attempt, redactor, "message", "evidence") for attempt in letter.attempts
        ),
        args=redactor.hidden(redactor.named(letter.task, letter.args, lambda _secret: REDACTED)),
        kwargs=redactor.hidden(letter.kwargs),
        envelope=_hide_envelope(letter.envelope, redactor),
        closed_reason=redactor.text(letter.closed_reason),
    )


def hide_group(group: Group, redactor: Redactor) -> Group:
    """``group`` without secrets in its example of a message, its note and its owner."""
    return _hide(group, redactor, "message", "note", "owner")


def hide_request(request: Request, redactor: Redactor) -> Request:
    """``request`` without secrets in its reasons. Its changes were made for people."""
    answers = tuple(_hide(one, redactor, "why") for one in request.answers)
    return replace(_hide(request, redactor, "why"), answers=answers)


def hide_operation(operation: Operation, redactor: Redactor) -> Operation:
    """``operation`` without secrets in its cause, its reason, its filter and its changes to messages."""
    orders = operation.orders
    assignments = tuple(_hide_in_text(text, redactor) for text in orders.repair.assignments)
    return replace(
        operation,
        cause=redactor.text(operation.cause),
        wanted=Filter.from_dict(redactor.hidden(operation.wanted.noted.to_dict())),
        orders=replace(
            orders,
            repair=replace(orders.repair, assignments=assignments),
            why=redactor.text(orders.why),
        ),
    )


def hide_assignment(assignment: Assignment, redactor: Redactor) -> str:
    """``assignment`` as text, without secrets. If any name on the way to its place is sensitive, the whole
    value is hidden; so is that of an argument by position, without a name that would say so."""
    steps = [*map(str, assignment.steps)]
    is_by_position = assignment.root == "args" and all(map(str.isdecimal, steps))
    if is_by_position or any(map(redactor.is_sensitive, steps)):
        return f"{assignment.place}={REDACTED}"
    value = json.dumps(redactor.hidden(assignment.value), ensure_ascii=False)
    return f"{assignment.place}={value}"


def hide_status(status: AutoStatus, redactor: Redactor) -> AutoStatus:
    """``status`` without secrets in its reason, which may repeat the cause of an operation."""
    return _hide(status, redactor, "why")


def hide_sending(sending: Sending, redactor: Redactor) -> Sending:
    """``sending`` without secrets in the reason why it was skipped, and in its change."""
    return _hide(sending, redactor, "why", "change")


def hide_change(change: Change, redactor: Redactor) -> Change:
    """``change`` without secrets."""
    return replace(_hide(change, redactor, "diff"), before=_hide_envelope(change.before, redactor))


def hide_handling(handling: Handling, redactor: Redactor) -> Handling:
    """``handling`` without secrets in its error and in the contents of its verdict."""
    detail = {
        name: redactor.text(value) if isinstance(value, str) else value
        for name, value in handling.detail.items()
    }
    return replace(_hide(handling, redactor, "error"), detail=detail)


def hide_automation(one: Handling | AutoStatus, redactor: Redactor) -> Handling | AutoStatus:
    """``one`` without secrets."""
    return (
        hide_status(one, redactor) if isinstance(one, AutoStatus) else hide_handling(one, redactor)
    )


def hide_act(act: AuditRow, redactor: Redactor) -> AuditRow:
    """An act of an operator, without secrets."""
    return replace(act, why=redactor.text(act.why), detail=redactor.hidden(act.detail))


def _hide_in_text(assignment: str, redactor: Redactor) -> str:
    try:
        return hide_assignment(parse_assignment(assignment), redactor)
    except RepairError:  # it was stored by another release
        return redactor.text(assignment)


def _hide(value: T, redactor: Redactor, *names: str) -> T:
    """``value``, a dataclass, without secrets in these texts."""
    hidden = {name: redactor.text(text) for name in names if (text := getattr(value, name))}
    return cast("T", replace(cast("Any", value), **hidden))


def _hide_envelope(envelope: Envelope, redactor: Redactor) -> Envelope:
    headers = redactor.hidden(dict(envelope.headers))
    copies = {name: REDACTED for name in _COPIES if headers.get(name)}
    return replace(
        envelope,
        headers={**headers, **copies},
        properties=redactor.hidden(dict(envelope.properties)),
    )
