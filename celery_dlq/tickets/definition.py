"""What the definition of a ticket handler may contain."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from celery_dlq.settings.allowed import NAMES, Allowed

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


#: The address under which a system's API is.
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
