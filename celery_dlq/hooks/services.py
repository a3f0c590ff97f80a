"""Ready-made hooks: a log, Sentry, a signed webhook, and Slack with the services that have its format."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from celery_dlq.errors import SettingsError
from celery_dlq.hooks.event import GOOD_NEWS, Event, EventHook, EventValue
from celery_dlq.hooks.http import USER_AGENT, Poster
from celery_dlq.hooks.words import data, details, headline, line
from celery_dlq.model.audit import AuditHead
from celery_dlq.model.automation import AutoStatus
from celery_dlq.model.group import Group
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.worker import Stall

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
        told = {"type": event.kind.value, "timestamp": event.at.isoformat(), "data": data(event)}
        body = json.dumps(told).encode()

        def headers() -> Mapping[str, str]:
            own = signed(self._key, f"dlq_{event.id}", self._clock(), body)
            return {**own, "User-Agent": USER_AGENT}

        self._poster.post(body, headers)


class Log(EventHook):
    """Writes one line for each event: at level INFO if a letter was redriven or resolved, otherwise WARNING.
    Its log record has the event as ``dlq_event``, a dictionary, for formatters.

    :param logger: name of the logger.
    """

    def __init__(self, logger: str = "celery_dlq.events") -> None:
        self._logger = logging.getLogger(logger)

    def __call__(self, event: Event) -> None:
        level = logging.INFO if event.kind in GOOD_NEWS else logging.WARNING
        fields = {"type": event.kind.value, "id": event.id, **data(event)}
        self._logger.log(level, "%s", line(event), extra={"dlq_event": fields})


class Sentry(EventHook):
    """Sends each event to Sentry, which groups events as this package does: their fingerprint is the group's.
    Your code calls ``sentry_sdk.init``.

    :raises SettingsError: ``sentry-sdk`` is not installed.
    """

    def __init__(self) -> None:
        try:
            import sentry_sdk
        except ImportError as error:
            raise SettingsError(
                "The hook for Sentry needs sentry-sdk; run: pip install 'celery-dlq[sentry]'"
            ) from error
        self._capture: Any = sentry_sdk.capture_event

    def __call__(self, event: Event) -> None:
        self._capture(_report(event))


def _report(event: Event) -> dict[str, Any]:
    value, contents = event.value, data(event)
    report: dict[str, Any] = {
        "event_id": event.id,
        "timestamp": event.at.isoformat(),
        "level": "info" if event.kind in GOOD_NEWS else "error",
        "logger": "celery_dlq",
        "message": line(event),
        "tags": {"dlq.event": event.kind.value},
        "contexts": {"dead_letter_queue": contents},
        "fingerprint": ["celery_dlq", event.kind.value],
    }
    if isinstance(value, (DeadLetter, Group)):
        report["transaction"] = value.task
        report["tags"] |= {"celery.task": value.task, "dlq.group": value.fingerprint}
        named = {"dlq.route": event.route, "dlq.owner": event.owner}
        report["tags"] |= {name: text for name, text in named.items() if text}
        report["fingerprint"] = [value.fingerprint]
        report["exception"] = {
            "values": [{"type": value.exception_type, "value": contents["message"]}]
        }
    return report


class Slack(EventHook):
    """Posts a message to an incoming webhook (https://api.slack.com/messaging/webhooks).

    :param url: the URL of the incoming webhook; anyone who has it can write to the channel.
    :param flower: the URL of Flower, such as ``https://flower.example.com``; messages link to its pages.
    :param timeout: time limit in seconds for connecting, and for each wait for bytes.
    :param attempts: number of tries, the first included, with full jitter between them.
    :raises SettingsError: an argument is not valid.
    """

    def __init__(
        self,
        url: str,
        *,
        flower: str = "",
        timeout: float = 10.0,
        attempts: int = 5,
        make_poster: Callable[..., Poster] = Poster,
    ) -> None:
        self._poster = make_poster(url, timeout_s=timeout, attempts=attempts)
        self._flower = flower.rstrip("/")

    def __repr__(self) -> str:
        return f"<Slack {self._poster.origin}>"

    def __call__(self, event: Event) -> None:
        """:raises HookError: it could not be posted."""
        title = self._linked(headline(event).capitalize(), event.value)
        text = f"{title}: {_escaped(details(event))}"
        self._poster.post(json.dumps({"text": text}).encode(), dict)

    def _linked(self, title: str, value: EventValue) -> str:
        if not self._flower:
            return title
        return f"<{_escaped(self._flower)}/dead-letters{_path(value)}|{title}>"


def _path(value: EventValue) -> str:
    if isinstance(value, DeadLetter):
        return f"/letters/{quote(value.task_id, safe='')}"
    if isinstance(value, Group):
        return f"/groups/{quote(value.fingerprint, safe='')}"
    if isinstance(value, AutoStatus):
        return "/operations"
    if isinstance(value, (Stall, AuditHead)):
        return ""  # no page is about it
    return f"/operations/{quote(value.id, safe='')}"


def _escaped(text: str) -> str:
    # https://api.slack.com/reference/surfaces/formatting#escaping: these three, and no others.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
