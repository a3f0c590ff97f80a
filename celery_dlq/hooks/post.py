"""Posts JSON to another service, with retries."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from http.client import HTTPException

from celery_dlq.classify.wait import retry_after, seconds_until
from celery_dlq.errors import HookError, SettingsError
from celery_dlq.hooks.http import make_opener, may_pass, origin_of, text_of, unanswered
from celery_dlq.retry.backoff import Uniform, full_jitter, uniform

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
        self.origin = origin_of(url)
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
    """In words, why there is no good answer. An answer is closed afterwards."""
    if not isinstance(error, urllib.error.HTTPError):
        return unanswered(error)
    with error:
        if 300 <= error.code < 400:
            return f"answered {error.code}: it redirects to another URL; configure that one"
        return f"answered {error.code}: {text_of(error, _REFUSAL_SIZE)}"
