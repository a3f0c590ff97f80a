"""Sends JSON to another system, and checks the values that users give about it. Errors name the meaning of
the answer and the next step, and contain no secrets."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.parse import urlencode, urlsplit

from celery_dlq.classify.wait import retry_after
from celery_dlq.errors import CeleryDLQError, HandlerError, TicketError
from celery_dlq.hooks.http import USER_AGENT, make_opener, may_pass, origin_of, text_of, unanswered
from celery_dlq.redact import REDACTED
from celery_dlq.settings.validation import NAMES, Allowed

#: The most bytes of an answer, and of an error's text.
ANSWER_SIZE, REFUSAL_SIZE = 8_000_000, 500

_AGAIN = "The handler is called again in a minute or two"

#: Hosts to which a token may travel without encryption.
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})

_URL_WORDS = (
    "an address that begins with https:// (http:// only for localhost) and names a host, "
    "without a user, a fragment"
)


def matching(pattern: str, words: str) -> Allowed:
    """A string that ``pattern`` matches as a whole."""
    compiled = re.compile(pattern, re.ASCII)
    return Allowed(words, lambda value: isinstance(value, str) and bool(compiled.fullmatch(value)))


def _is_address(value: Any, *, query: bool) -> bool:
    if not isinstance(value, str) or not re.fullmatch(r"[!-~]+", value):
        return False
    try:
        parts = urlsplit(value)
        host, _port = parts.hostname, parts.port
    except ValueError:
        return False
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and host in _LOCAL)
    has_more = bool(parts.query) and not query
    return bool(
        is_safe and host and "@" not in parts.netloc and not parts.fragment and not has_more
    )


#: The address of a system's API.
SITE = Allowed(f"{_URL_WORDS} or a query", lambda value: _is_address(value, query=False))
#: One address to post to.
ADDRESS = Allowed(_URL_WORDS, lambda value: _is_address(value, query=True))
#: It becomes a header. An error about a header with a line break would show the token.
TOKEN = matching(
    r"[!-~]+", "a text of printable ASCII characters without blanks; is its variable set?"
)
APP = matching(r"[\w.:-]*", "the name after `celery -A`, such as shop, or an empty string")
LABELS = Allowed("a list of names, such as ('celery',)", NAMES.accepts)
LOGINS = Allowed("a list of login names, such as ('ann',)", NAMES.accepts)


@dataclass(frozen=True, kw_only=True)
class Service:
    """One system, as one definition of a handler speaks with it.

    :param timeout_s: time limit for connecting, and for each wait for bytes.
    """

    #: Its name, for people.
    name: str
    #: The address that all paths begin with.
    base: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    #: Texts that no error may contain.
    secrets: tuple[str, ...] = field(repr=False)
    #: The meaning of each status, and the next step.
    meanings: Mapping[int, str]
    timeout_s: float

    def get(self, path: str, query: Mapping[str, str]) -> Any:
        """The answer to a question.

        :raises HandlerError: the system refused it, or its answer is not JSON.
        :raises TicketError: it does not answer, or cannot now.
        """
        return self._answer(urllib.request.Request(f"{self.base}{path}?{urlencode(query)}"))  # noqa: S310 - the scheme is checked

    def post(self, path: str, told: object, headers: Mapping[str, str] | None = None) -> Any:
        """The answer to a question or an act that has a JSON value; errors as in :meth:`get`."""
        return self.post_bytes(path, json.dumps(told).encode(), headers or {})

    def post_bytes(self, path: str, body: bytes, headers: Mapping[str, str]) -> Any:
        """The answer to a body that is JSON already; errors as in :meth:`get`."""
        own = {"Content-Type": "application/json", **headers}
        url = f"{self.base}{path}"
        return self._answer(urllib.request.Request(url, body, own, method="POST"))  # noqa: S310 - the scheme is checked

    def wrong(self, what: str) -> HandlerError:
        """The error that its answer is not as expected."""
        return HandlerError(f"{self._shown}: {what}")

    @property
    def _shown(self) -> str:
        return f"{self.name} at {origin_of(self.base)}"

    def _answer(self, request: urllib.request.Request) -> Any:
        for name, value in {"User-Agent": USER_AGENT, **self.headers}.items():
            request.add_header(name, value)
        # The exceptions of urllib have the request, and so the token: none of them is chained to ours.
        try:
            with make_opener().open(request, timeout=self.timeout_s) as response:
                status, body = response.status, response.read(ANSWER_SIZE + 1)
        except urllib.error.HTTPError as error:
            raise self._refused(error) from None
        except (OSError, HTTPException) as error:
            text = self._without_secrets(unanswered(error))
            raise TicketError(f"{self._shown} {text}. {_AGAIN}.") from None
        return self._read(status, body)

    def _read(self, status: int, body: bytes) -> Any:
        if len(body) > ANSWER_SIZE:
            raise self.wrong(f"its answer is larger than {ANSWER_SIZE} bytes. Check url.")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            pass
        raise self.wrong(f"it answered {status}, but not in JSON. Is url the address of its API?")

    def _refused(self, error: urllib.error.HTTPError) -> CeleryDLQError:
        with error:
            # GitHub says 403, too, if there were too many requests; only then it also says when to ask again.
            is_limit = error.code == 429 or (error.code == 403 and retry_after(error) is not None)
            said = f"{self._shown} answered {error.code}{self._text_of(error)}."
        if is_limit:
            return TicketError(f"{said} It had too many requests. {_AGAIN}.")
        if may_pass(error) or error.code >= 500:
            return TicketError(f"{said} It cannot do this now. {_AGAIN}.")
        return HandlerError(f"{said} {self._meaning(error.code)}")

    def _meaning(self, status: int) -> str:
        if 300 <= status < 400:
            return "It redirects to another address, and that is not followed. Give the new one."
        return self.meanings.get(status, "It does not accept the request. Check the definition.")

    def _text_of(self, error: urllib.error.HTTPError) -> str:
        text = text_of(error, REFUSAL_SIZE)
        return f": {self._without_secrets(text)}" if text else ""

    def _without_secrets(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, REDACTED)
        return text
