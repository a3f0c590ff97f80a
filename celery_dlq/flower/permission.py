"""Who may change something through Flower, and under which name. Flower itself says who may look."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

#: Flower's own consent to an interface without authentication.
OPEN_VARIABLE = "FLOWER_UNAUTHENTICATED_API"

_YES = frozenset({"y", "yes", "t", "true", "on", "1"})

READ_ONLY = "This Flower only shows: it was started with --read_only."

NO_AUTHENTICATION = (
    "This Flower asks nobody who they are, so it changes nothing. Start it with --basic_auth or --auth; or, "
    f"if everybody who reaches it may redrive and discard, with {OPEN_VARIABLE}=true in its environment."
)

FOREIGN = (
    "This request came from a page of another site. If it was yours, let the proxy before Flower pass on "
    "the Host header; see docs/howto/flower.md."
)

UNPROVEN = (
    "The token of this request is missing or is not that of this browser. Load the page again and repeat "
    "what you did."
)


def asks_who(options: Any) -> bool:
    """Whether Flower has authentication."""
    return bool(options.basic_auth or options.auth)


def is_open(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a Flower without authentication was opened to everybody."""
    return environ.get(OPEN_VARIABLE, "").strip().lower() in _YES


def why_no_changes(options: Any, environ: Mapping[str, str] = os.environ) -> str | None:
    """Why nobody may change anything through this Flower; None when those who may look may."""
    if getattr(options, "read_only", False):  # since 2.1
        return READ_ONLY
    if not asks_who(options) and not is_open(environ):
        return NO_AUTHENTICATION
    return None


def is_foreign(headers: Mapping[str, str], host: str) -> bool:
    """Whether a browser says that another site makes the request."""
    site, origin = headers.get("Sec-Fetch-Site"), headers.get("Origin")
    if site is not None and site != "same-origin":
        return True
    return origin is not None and urlsplit(origin).netloc != host


def is_browser(headers: Mapping[str, str]) -> bool:
    """Whether a browser may have made the request on its own, with credentials that it keeps."""
    return any(name in headers for name in ("Origin", "Sec-Fetch-Site", "Cookie", "Referer"))


def actor_of(user: object, headers: Mapping[str, str], address: str, options: Any) -> str:
    """Who acts, for the audit: the address that OAuth vouches for, the name of basic authentication,
    or where a Flower without authentication was called from."""
    if isinstance(user, str):
        return user
    if options.basic_auth:
        return f"{_basic_name(headers.get('Authorization', ''))} (flower)"
    return f"anonymous at {address} (flower)"


def _basic_name(authorization: str) -> str:
    try:
        decoded = base64.b64decode(authorization.partition(" ")[2]).decode()
    except (binascii.Error, UnicodeDecodeError):
        return "unknown"
    return decoded.partition(":")[0] or "unknown"
