"""Permission to make changes through Flower, the actor's name, and the tokens ("marks") in forms: each is
made for one user, and is accepted once. Flower itself decides who may look."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from celery_dlq.errors import page
from celery_dlq.model.request import FROM_FLOWER, Login

#: Flower's own switch for an API without authentication.
OPEN_VARIABLE = "FLOWER_UNAUTHENTICATED_API"

_YES = frozenset({"y", "yes", "t", "true", "on", "1"})

READ_ONLY = "This Flower makes no changes, because it was started with --read_only."

NO_AUTHENTICATION = (
    "This Flower has no authentication, so it makes no changes. Start it with --basic_auth or --auth; or, if "
    f"everyone who can reach it may redrive, discard and delete, set {OPEN_VARIABLE}=true in its environment."
)

LACKS_ROLE = f"You do not have the role {{}} in dlq_roles, which this needs; see {page('flower')}."

#: The role that each act needs.
ROLE_OF = {
    **dict.fromkeys(("redrive", "edit", "unpark", "pause", "resume", "cancel", "run"), "act"),
    **dict.fromkeys(("ignore", "resolve", "reopen", "note", "assign", "merge", "split"), "triage"),
    **dict.fromkeys(("discard", "undiscard"), "triage"),
    **dict.fromkeys(("approve", "refuse"), "approve"),
    "delete": "erase",
}

FOREIGN = (
    "This request came from a page of another site. If that was your own page, configure the proxy in front "
    f"of Flower to pass on the Host header; see {page('flower')}."
)

UNPROVEN = "This request has no token, or that of another browser. Reload the page and try again."

#: Seconds for which a form is valid.
VALID_S = 12 * 3_600


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


def name_of(user: object, headers: Mapping[str, str], options: Any) -> str:
    """The address from OAuth, or the name from basic authentication; empty without authentication."""
    if isinstance(user, str):
        return user
    return _basic_name(headers.get("Authorization", "")) if options.basic_auth else ""


def actor_of(user: object, headers: Mapping[str, str], address: str, options: Any) -> str:
    """The actor's name for the audit: that of :func:`name_of`, or, without authentication, the IP address of
    the client. Only a login proves a name."""
    name = name_of(user, headers, options)
    if not name:
        return f"anonymous at {address}{FROM_FLOWER}"
    return Login(name if isinstance(user, str) else f"{name}{FROM_FLOWER}")


def has_role(
    roles: Mapping[str, Sequence[str]] | None, role: str, name: str, *, is_address: bool
) -> bool:
    """Whether the user ``name`` has a role. An anonymous visitor has at most the role ``read``.

    :param roles: the setting; None if everyone has all roles.
    :param is_address: whether OAuth has proven that the name is a mail address; no other name has a domain.
    """
    if roles is None:
        return True
    if not name:
        return role == "read" and "*" in roles.get(role, ())
    local, _, domain = _plain(name).rpartition(b"@")
    mine = {b"*", b"@" + domain if is_address and local and b"@" not in local else b"*"}
    if not name.startswith("@"):
        mine.add(_plain(name))
    lists = roles.values() if role == "read" else [roles.get(role, ())]
    return any(_plain(one) in mine for names in lists for one in names)


def _plain(name: str) -> bytes:
    # Only ASCII, because other letters, such as the Kelvin sign, may become ASCII in lower case.
    return name.encode("utf-8", "backslashreplace").lower()


def _basic_name(authorization: str) -> str:
    try:
        decoded = base64.b64decode(authorization.partition(" ")[2]).decode()
    except (binascii.Error, UnicodeDecodeError):
        return "unknown"
    return decoded.partition(":")[0] or "unknown"


class Forms:
    """Creates and checks marks. A mark is for one act of one actor. A form that is sent twice, replayed, or
    older than a restart of Flower is refused.

    :param clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._secret = secrets.token_bytes(32)
        self._clock = clock
        self._taken: dict[str, float] = {}

    def mark(self, act: str, actor: str) -> str:
        """A new mark."""
        body = f"{int(self._clock())}.{secrets.token_hex(8)}"
        return f"{body}.{self._signature(body, act, actor)}"

    def take(self, mark: str, act: str, actor: str) -> bool:
        """Whether ``mark`` was made for this act of this actor, is not too old, and has not been used; marks
        it as used."""
        body, _, signature = mark.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(body, act, actor).encode()):
            return False
        now = self._clock()
        self._forget(now)
        made = int(body.partition(".")[0])
        if body in self._taken or now - made > VALID_S:
            return False
        self._taken[body] = made
        return True

    def age_s(self, mark: str) -> float:
        """Seconds since ``mark``, which was taken, was made; up to one too many."""
        return self._clock() - int(mark.partition(".")[0])

    def _signature(self, body: str, act: str, actor: str) -> str:
        said = "\x00".join((body, act, actor)).encode("utf-8", "backslashreplace")
        return hmac.new(self._secret, said, hashlib.sha256).hexdigest()

    def _forget(self, now: float) -> None:
        old = [body for body, made in self._taken.items() if now - made > VALID_S]
        for body in old:
            del self._taken[body]
