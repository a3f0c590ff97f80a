"""How this package talks to other services: no redirects, no secrets of a URL in errors, and retries."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from celery_dlq.base.redact import clip, safe_message
from celery_dlq.classify.wait import retry_after, seconds_until
from celery_dlq.errors import HookError, SettingsError
from celery_dlq.retry.policy import Uniform, full_jitter, uniform

#: The name that requests give.
USER_AGENT = "celery-dlq"
#: Statuses that are worth another try (RFC 9110, RFC 6585); others mean that the request is wrong.
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: a redirected POST would become a GET, and go to a server that no one
    configured."""

    def redirect_request(self, *_: Any) -> None:
        return None


def make_opener() -> urllib.request.OpenerDirector:
    """An opener that sends requests. An answer other than 2xx is raised."""
    return urllib.request.build_opener(_NoRedirect)


def origin_of(url: str) -> str:
    """Scheme, host and port, for messages: the rest of the URL may be a secret, as it is with Slack. Empty if
    it is not the URL of an HTTP server."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except (ValueError, TypeError, AttributeError):
        return ""
    if not host or parts.scheme not in ("http", "https"):
        return ""
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}"


def may_pass(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    return not isinstance(error, urllib.error.HTTPError) or error.code in _PASSING


def unanswered(error: Exception) -> str:
    """The words for a missing answer."""
    return f"does not answer: {type(error).__name__}: {safe_message(error)}"


def text_of(error: urllib.error.HTTPError, size: int) -> str:
    """The beginning of what the server says, on one line; empty if that cannot be read.

    :param size: the most bytes that are read, and the most characters that are returned.
    """
    try:
        said = error.read(size + 1)
    except (OSError, HTTPException):
        return ""
    return clip(" ".join(said.decode("utf-8", "replace").split()), size)


#: Base and cap of the waits between tries, in seconds; the cap also limits the wait that the server asks for.
BASE_S, CAP_S = 0.5, 30.0
#: The most bytes of an error response that are read and shown.
_REFUSAL_SIZE = 200


class Poster:
    """Posts to one URL.

    :param timeout_s: time limit for connecting, and for each wait for bytes.
    :param attempts: number of tries, the first included.
    :raises SettingsError: the URL is not an HTTP URL, or a number is out of bounds.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float,
        attempts: int,
        sleep: Callable[[float], object] = time.sleep,
        draw: Uniform = uniform,
    ) -> None:
        self.origin: str = origin_of(url)
        if not self.origin:
            raise SettingsError(
                "The URL of a hook must begin with https:// or http:// and name a host; "
                "copy the whole URL from the service."
            )
        if not timeout_s > 0 or attempts < 1:
            raise SettingsError(
                f"A hook that posts to {self.origin} needs a timeout above 0 and at least one attempt."
            )
        self._url, self._timeout_s, self._attempts = url, timeout_s, attempts
        self._sleep, self._draw = sleep, draw
        self._opener = make_opener()

    def post(self, body: bytes, headers: Callable[[], Mapping[str, str]]) -> None:
        """Post ``body``; ``headers`` are made for each try, because they may contain the time.

        :raises HookError: the server refused it, or all tries failed.
        """
        for attempt in range(1, self._attempts + 1):
            failure = self._try(body, headers())
            if failure is None:
                return
            error, said = failure
            if attempt == self._attempts or not may_pass(error):
                raise HookError(f"{self.origin} {said} (attempt {attempt})") from None
            self._sleep(self._pause_s(error, attempt))

    def _try(self, body: bytes, headers: Mapping[str, str]) -> tuple[Exception, str] | None:
        """Post once; returns why that failed, also in words, or None."""
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked
            self._url, body, {"Content-Type": "application/json", **headers}, method="POST"
        )
        try:
            with self._opener.open(request, timeout=self._timeout_s):
                return None
        except (OSError, HTTPException) as error:
            return error, _described(error)

    def _pause_s(self, error: Exception, attempt: int) -> float:
        asked = retry_after(error) if isinstance(error, urllib.error.HTTPError) else None
        pause_s = full_jitter(attempt, BASE_S, CAP_S, self._draw)
        if asked is None:
            return pause_s
        return max(pause_s, min(CAP_S, seconds_until(asked, datetime.now(timezone.utc))))


def _described(error: Exception) -> str:
    """The words for a bad or missing answer. An answer is closed afterwards."""
    if not isinstance(error, urllib.error.HTTPError):
        return unanswered(error)
    with error:
        if 300 <= error.code < 400:
            return f"answered {error.code}: it redirects to another URL; configure that one"
        return f"answered {error.code}: {text_of(error, _REFUSAL_SIZE)}"
