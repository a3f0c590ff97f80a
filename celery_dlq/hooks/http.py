"""How this package talks to other services: no redirects, and errors without the secrets of a URL."""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from celery_dlq.redact import clip, safe_message

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
    """What sends requests. An answer other than 2xx is raised."""
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
    """In words, that no answer came."""
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
