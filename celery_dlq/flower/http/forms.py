"""Tokens ("marks") in forms: each is made for one user, and is accepted once."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable

#: Seconds for which a form is valid.
VALID_S = 12 * 3_600


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
