"""Signed webhooks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping

from celery_dlq.hooks.event import Event, EventHook
from celery_dlq.hooks.http import USER_AGENT
from celery_dlq.hooks.post import Poster
from celery_dlq.hooks.signature import key_of, signed
from celery_dlq.hooks.words import data


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
        self._poster.post(body, lambda: self._headers(f"dlq_{event.id}", body))

    def _headers(self, message_id: str, body: bytes) -> Mapping[str, str]:
        return {**signed(self._key, message_id, self._clock(), body), "User-Agent": USER_AGENT}
