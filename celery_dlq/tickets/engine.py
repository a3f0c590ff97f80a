"""Looks for the ticket of a group, or else opens one, in any system of the table. Errors name the meaning of
an answer and the next step, and contain no secrets."""

from __future__ import annotations

import json
import logging
import re
import urllib.error
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from http.client import HTTPException
from typing import Any, ClassVar, NamedTuple
from urllib.request import Request

from celery_dlq.base.redact import REDACTED, hide_known
from celery_dlq.classify.wait import retry_after
from celery_dlq.errors import CeleryDLQError, HandlerError, SettingsError, TicketError, page
from celery_dlq.hooks.http import USER_AGENT, make_opener, may_pass, origin_of, text_of, unanswered
from celery_dlq.model.handling import HandlerLetter, Leave, Ticket
from celery_dlq.settings.validation import Allowed, number
from celery_dlq.tickets.text import TicketText, text_about

logger: logging.Logger = logging.getLogger(__name__)

#: The most bytes of an answer, and of an error's text.
ANSWER_SIZE, REFUSAL_SIZE = 8_000_000, 500

_AGAIN = "The handler is called again in a minute or two."
_NO_API = "Is url the address of its API?"
#: The meaning of each status that a definition may cause, and the next step.
_MEANINGS = {
    401: "It does not accept the login. Check token (Jira Cloud: and email).",
    403: "The login may not do this. Allow it to read and write issues.",
    404: "It has no such address, or the login may not see it. Check url and the project.",
    410: "It has this no longer. Switch issues on in the project; give email if this is Jira Cloud.",
    422: "It does not accept the issue. Check labels, assignees and the type.",
}
_NOT_ACCEPTED = "It does not accept the request. Check the definition."


def allowed(values: Allowed) -> Mapping[str, Allowed]:
    """The metadata of a field of a definition: its allowed values."""
    return {"allowed": values}


def one(pattern: str, words: str, kinds: tuple[type, ...] = (str,)) -> Mapping[str, Allowed]:
    """Allows a value of one of ``kinds`` whose text ``pattern`` matches as a whole."""
    matches = re.compile(pattern, re.ASCII).fullmatch
    return allowed(
        Allowed(words, lambda value: type(value) in kinds and matches(str(value)) is not None)
    )


def several(pattern: str, words: str, kinds: tuple[type, ...] = (str,)) -> Mapping[str, Allowed]:
    """Allows a list of such values."""
    accepts = one(pattern, words, kinds)["allowed"].accepts
    return allowed(
        Allowed(words, lambda value: isinstance(value, (list, tuple)) and all(map(accepts, value)))
    )


class Row(NamedTuple):
    """What one system needs to hear about one group."""

    #: The address that lists the open tickets.
    search: str
    #: The address to post a new ticket to, and the ticket in JSON.
    create: str
    body: bytes
    #: The login, and other headers.
    headers: Mapping[str, str]
    #: What the address of a ticket has before the field of the answer.
    prefix: str = ""


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
    #: The name of the system, for people; and the field of its answers with the address of a ticket.
    system: ClassVar[str]
    address: ClassVar[str]

    #: The name after ``celery -A``, for the commands in the ticket.
    app: str = field(
        default="",
        metadata=one(r"[\w.:-]*", "the name after `celery -A`, such as shop, or an empty string"),
    )
    #: Time limit in seconds for connecting to the system, and for each wait for bytes.
    timeout: float = field(default=10.0, metadata=allowed(number(0.05, 300, "seconds")))

    def __post_init__(self) -> None:
        values = [(item, getattr(self, item.name)) for item in fields(self)]
        problems = [
            f"{item.name}{f' = {value!r}' if item.repr else ''} is not {item.metadata['allowed'].words}"
            for item, value in values
            if not item.metadata["allowed"].accepts(value)
        ]
        if problems:
            said = f"{type(self).__name__}: {'; '.join(problems)}"
            raise SettingsError(f"{said}. See {page('repair-and-escalate')}.")

    def __call__(self, letter: HandlerLetter) -> Ticket | Leave:
        """The ticket of the letter's group: an open one that exists in the system, or a new one. A letter
        whose group is known to have a ticket is left.

        :raises HandlerError: the system refuses it, and will again.
        :raises TicketError: the system does not answer, or cannot do it now.
        """
        if letter.ticket is not None:
            return Leave()
        # All systems allow the characters and the length of this label.
        mark = f"dlq-{letter.fingerprint}"
        row = self._row(mark, text_about(letter.shown, self.app))
        return Ticket(self._found(row, mark) or self._opened(row, mark))

    @abstractmethod
    def _row(self, mark: str, text: TicketText) -> Row:
        """The requests about a group.

        :param mark: the label of its tickets.
        """

    def _found(self, row: Row, mark: str) -> str | None:
        answer = self._answer(row, row.search)
        listed = answer.get("issues") if isinstance(answer, dict) else answer
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            raise self._unexpected(row, f"it did not answer with a list of issues. {_NO_API}")
        issues = (one for one in listed if "pull_request" not in one and _has(one, mark))
        return next((self._url_of(row, issue) for issue in issues), None)

    def _opened(self, row: Row, mark: str) -> str:
        issue = self._answer(row, row.create, row.body)
        url = self._url_of(row, issue)
        if not _has(issue, mark):
            logger.warning(
                "%s has not given %s the label %s: allow the token to set labels; without it, a worker that "
                "is killed at the wrong moment leads to a second ticket", self.system, hide_known(url), mark,
            )  # fmt: skip
        return url

    def _url_of(self, row: Row, issue: object) -> str:
        value = issue.get(self.address) if isinstance(issue, dict) else None
        url = f"{row.prefix}{value}" if isinstance(value, str) and value else ""
        if not url.startswith(("https://", "http://")):
            raise self._unexpected(row, f"its answer has no address as {self.address}. {_NO_API}")
        return url

    def _answer(self, row: Row, url: str, body: bytes | None = None) -> Any:
        headers = {"User-Agent": USER_AGENT, "Content-Type": "application/json", **row.headers}
        request = Request(url, body, headers)  # noqa: S310 - the scheme is checked
        # The exceptions of urllib have the request, and so the token: none of them is chained to ours.
        try:
            with make_opener().open(request, timeout=self.timeout) as response:
                answer = response.read(ANSWER_SIZE + 1)
        except urllib.error.HTTPError as error:
            raise self._refusal(row, error) from None
        except (OSError, HTTPException) as error:
            said = self._without_secrets(row, unanswered(error))
            raise TicketError(f"{self._at(row)} {said}. {_AGAIN}") from None
        if len(answer) > ANSWER_SIZE:
            raise self._unexpected(
                row, f"its answer is larger than {ANSWER_SIZE} bytes. Check url."
            )
        try:
            return json.loads(answer)
        except (ValueError, RecursionError):
            raise self._unexpected(row, f"it did not answer in JSON. {_NO_API}") from None

    def _refusal(self, row: Row, error: urllib.error.HTTPError) -> CeleryDLQError:
        with error:
            # GitHub says 403, too, if there were too many requests; only then it also says when to ask again.
            is_limit = error.code == 429 or (error.code == 403 and retry_after(error) is not None)
            text = self._without_secrets(row, text_of(error, REFUSAL_SIZE))
        said = f"{self._at(row)} answered {error.code}{text and f': {text}'}."
        if is_limit:
            return TicketError(f"{said} It had too many requests. {_AGAIN}")
        if may_pass(error) or error.code >= 500:
            return TicketError(f"{said} It cannot do this now. {_AGAIN}")
        if 300 <= error.code < 400:
            return HandlerError(
                f"{said} It redirects, and that is not followed. Give the new address."
            )
        return HandlerError(f"{said} {_MEANINGS.get(error.code, _NOT_ACCEPTED)}")

    def _unexpected(self, row: Row, what: str) -> HandlerError:
        return HandlerError(f"{self._at(row)}: {what}")

    def _at(self, row: Row) -> str:
        return f"{self.system} at {origin_of(row.create)}"

    def _without_secrets(self, row: Row, text: str) -> str:
        values = [getattr(self, item.name) for item in fields(self) if not item.repr]
        for secret in (*values, *row.headers.get("Authorization", "").split()[-1:]):
            text = text.replace(secret, REDACTED) if secret and isinstance(secret, str) else text
        return text


def _has(issue: Mapping[str, Any], mark: str) -> bool:
    """Whether the issue has the label. An answer without labels, as those of Jira, has it."""
    labels = issue.get("labels", [mark])
    return isinstance(labels, list) and mark in [
        label.get("name") if isinstance(label, dict) else label for label in labels
    ]
