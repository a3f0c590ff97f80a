"""Signed webhooks, as in Standard Webhooks 1.0 (https://github.com/standard-webhooks/standard-webhooks)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping

from celery_dlq.errors import SettingsError
from celery_dlq.hooks.event import Event, EventHook
from celery_dlq.hooks.http import USER_AGENT, Poster
from celery_dlq.hooks.words import data

_PREFIX = "whsec_"
#: Size of a secret in bytes, according to the specification.
_LEAST, _MOST = 24, 64


def key_of(secret: str) -> bytes:
    """The key that ``secret`` stands for.

    :raises SettingsError: it is not ``whsec_`` and 24 to 64 bytes in base64.
    """
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError, AttributeError):
        key = b""
    if not _LEAST <= len(key) <= _MOST:
        raise SettingsError(
            f"The secret of a webhook is {_PREFIX!r} and {_LEAST} to {_MOST} bytes in base64; make one: "
            f"echo {_PREFIX}$(openssl rand -base64 32)"
        )
    return key


def signed(key: bytes, message_id: str, now: float, body: bytes) -> Mapping[str, str]:
    """The headers that sign ``body``.

    :param now: the time of sending, in seconds since 1970.
    """
    timestamp = str(int(now))
    contents = b".".join((message_id.encode(), timestamp.encode(), body))
    digest = hmac.new(key, contents, hashlib.sha256).digest()
    return {
        "Webhook-Id": message_id,
        "Webhook-Timestamp": timestamp,
        "Webhook-Signature": f"v1,{base64.b64encode(digest).decode()}",
    }


class Webhook(EventHook):
    """Posts every event as JSON, signed as in Standard Webhooks 1.0
    (https://github.com/standard-webhooks/standard-webhooks), which has libraries to verify it.

    :param secret: ``whsec_`` and 24 to 64 bytes in base64; the receiver has the same secret.
    :param timeout: time limit in seconds for connecting, and for each wait for bytes.
    :param attempts: number of tries, including the first, with full jitter between them.
    :raises SettingsError: an argument is not valid.
    """

    def __init__(
        self,
        url: str,
        secret: str,
        *,
        timeout: float = 10.0,
        attempts: int = 5,
        clock: Callable[[], float] = time.time,
        make_poster: Callable[..., Poster] = Poster,
    ) -> None:
        self._key, self._clock = key_of(secret), clock
        self._poster = make_poster(url, timeout_s=timeout, attempts=attempts)

    def __repr__(self) -> str:
        return f"<Webhook {self._poster.origin}>"

    def __call__(self, event: Event) -> None:
        """:raises HookError: it could not be posted."""
        told = {
            "type": event.kind.value,
            "timestamp": event.at.isoformat(),
            "data": data(event),
        }
        body = json.dumps(told).encode()

        def headers() -> Mapping[str, str]:
            own = signed(self._key, f"dlq_{event.id}", self._clock(), body)
            return {**own, "User-Agent": USER_AGENT}

        self._poster.post(body, headers)
