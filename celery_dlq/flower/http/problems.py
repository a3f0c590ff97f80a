"""Errors for people: a status, a title, and a sentence that names the next step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus

from tornado.web import HTTPError

from celery_dlq.base.redact import hide_known
from celery_dlq.errors import (
    AmbiguousId,
    CeleryDLQError,
    FilterError,
    OperationError,
    OrdersError,
    RepairError,
    SettingsError,
    StoreError,
    TriageError,
    UnknownAutomation,
    UnknownGroup,
    UnknownLetter,
    UnknownOperation,
)
from celery_dlq.view.text import visible


class Refused(HTTPError):
    """A request that was refused.

    :param status: the HTTP status.
    :param why: the reason, shown to the user.
    :param facts: further values for programs.
    """

    def __init__(self, status: int, why: str, **facts: object) -> None:
        super().__init__(status)
        self.why = why
        self.facts = facts


@dataclass(frozen=True, kw_only=True)
class Problem:
    """An error as it is shown to the user."""

    status: int
    title: str
    text: str
    facts: Mapping[str, object] = field(default_factory=dict)


_TITLES = {
    400: "Invalid request",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    409: "No longer possible",
    503: "The dead-letter store does not answer",
}

_STATUS: tuple[tuple[type[CeleryDLQError], int], ...] = (
    (UnknownLetter, 404),
    (UnknownOperation, 404),
    (UnknownGroup, 404),
    (UnknownAutomation, 404),
    (AmbiguousId, 400),
    (FilterError, 400),
    (TriageError, 400),
    (OrdersError, 400),
    (RepairError, 400),
    (OperationError, 409),
    (SettingsError, 503),
    (StoreError, 503),
)

_TEXTS = {
    400: "The request cannot be read; its address must be UTF-8, written with percent signs.",
    401: "Flower needs a user name and a password; log in with valid ones.",
    404: "This page does not exist. Go back to the overview.",
    405: "This address does not accept this HTTP method.",
}

_BUG = "Something went wrong. See Flower's log for details."


def problem_of(error: BaseException | None, status: int) -> Problem:
    """The problem that describes ``error``.

    :param status: Tornado's HTTP status for it.
    """
    if isinstance(error, CeleryDLQError):
        return _made(status_of(error), _sentence(hide_known(str(error))))
    if isinstance(error, Refused):
        return replace(_made(error.status_code, error.why), facts=error.facts)
    if isinstance(error, HTTPError):
        return _made(status, _TEXTS.get(status) or f"{_phrase(status)}.")
    return _made(status, _TEXTS.get(status) or _BUG)


def status_of(error: CeleryDLQError) -> int:
    """The HTTP status for ``error``."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def _made(status: int, text: str) -> Problem:
    return Problem(status=status, title=_TITLES.get(status) or _phrase(status), text=text)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def _sentence(text: str) -> str:
    said = visible(" ".join(text.split()))
    return said if said.endswith((".", "!", "?")) else f"{said}."
