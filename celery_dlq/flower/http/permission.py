"""Permission to make changes through Flower, and the actor's name. Flower itself decides who may look."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from celery_dlq.errors import page

#: Flower's own switch for an API without authentication.
OPEN_VARIABLE = "FLOWER_UNAUTHENTICATED_API"

_YES = frozenset({"y", "yes", "t", "true", "on", "1"})

READ_ONLY = "This Flower makes no changes, because it was started with --read_only."

NO_AUTHENTICATION = (
    "This Flower has no authentication, so it makes no changes. Start it with --basic_auth or --auth; or, if "
    f"everyone who can reach it may redrive, discard and delete, set {OPEN_VARIABLE}=true in its environment."
)

FOREIGN = (
    "This request came from a page of another site. If that was your own page, configure the proxy in front "
    f"of Flower to pass on the Host header; see {page('flower')}."
)

UNPROVEN = "This request has no token, or that of another browser. Reload the page and try again."


def asks_who(options: Any) -> bool:
    """Whether Flower has authentication."""
    return bool(options.basic_auth or options.auth)


def is_open(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a Flower without authentication was opened to everyone."""
    return environ.get(OPEN_VARIABLE, "").strip().lower() in _YES


def why_no_changes(options: Any, environ: Mapping[str, str] = os.environ) -> str | None:
    """Why this Flower makes no changes; None if everyone who may look may also make changes."""
    if getattr(options, "read_only", False):  # since 2.1
        return READ_ONLY
    if not asks_who(options) and not is_open(environ):
        return NO_AUTHENTICATION
    return None


def is_foreign(headers: Mapping[str, str], host: str) -> bool:
    """Whether the request comes from another site, according to the browser."""
    site, origin = headers.get("Sec-Fetch-Site"), headers.get("Origin")
    if site is not None and site != "same-origin":
        return True
    return origin is not None and urlsplit(origin).netloc != host


def is_browser(headers: Mapping[str, str]) -> bool:
    """Whether a browser may have sent the request, with credentials that it stores."""
    return any(name in headers for name in ("Origin", "Sec-Fetch-Site", "Cookie", "Referer"))


def actor_of(user: object, headers: Mapping[str, str], address: str, options: Any) -> str:
    """The actor's name for the audit: the address from OAuth, the name from basic authentication, or, without
    authentication, the IP address of the client."""
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
