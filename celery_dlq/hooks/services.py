"""Ready-made hooks: a log, Sentry, and Slack with the services that have its format."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from celery_dlq.errors import SettingsError
from celery_dlq.hooks.event import GOOD_NEWS, Event, EventHook, EventValue
from celery_dlq.hooks.http import Poster
from celery_dlq.hooks.words import LINE_LIMIT, data, flat, headline, line
from celery_dlq.model.auto_redrive import AutoStatus
from celery_dlq.model.group import Group
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.worker import Stall
from celery_dlq.redact import clip
from celery_dlq.store.base import Operation


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


#: Characters of a field; Slack refuses more than 2,000.
_FIELD_LIMIT = 500


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
        self._poster.post(json.dumps(self._message(event)).encode(), dict)

    def _message(self, event: Event) -> dict[str, Any]:
        title = headline(event).capitalize()
        fields = [
            {"type": "mrkdwn", "text": f"*{name}*\n{_escaped(flat(clip(text, _FIELD_LIMIT)))}"}
            for name, text in _fields(event)
        ]
        section: dict[str, Any] = {
            "type": "section",
            "text": {"type": "mrkdwn", "text": f"*{self._linked(title, event.value)}*"},
            "fields": fields,
        }
        return {"text": _escaped(line(event)), "blocks": [section]}

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
    if isinstance(value, Stall):
        return ""  # no page is about it
    return f"/operations/{quote(value.id, safe='')}"


def _fields(event: Event) -> Iterator[tuple[str, str]]:
    value = event.shown
    if isinstance(value, (DeadLetter, Group)):
        yield "Task", value.task
        yield "Error", f"{value.exception_type}: {clip(value.message, LINE_LIMIT)}"
        yield "Group", value.fingerprint
    if isinstance(value, DeadLetter):
        yield "Letter", value.task_id
        yield "Reason", value.reason.value
    elif isinstance(value, Group):
        yield "Open", f"{value.open_count:,} of {value.letter_count:,}"
        yield "Failures", f"{value.total_count:,}"
    elif isinstance(value, AutoStatus):
        yield "Automatic redrive", value.name
        yield "Cause", value.why
    elif isinstance(value, Stall):
        yield "Worker", value.worker
        yield "Waiting", f"{value.messages:,} in {', '.join(value.queues)}"
    elif isinstance(value, Operation):
        yield "Operation", value.id
        yield "Cause", value.cause
        yield "Sent", f"{value.counts.out:,} of {value.counts.planned:,}"
    if event.route:
        yield "Route", event.route
    if event.owner:
        yield "Owner", event.owner


def _escaped(text: str) -> str:
    # https://api.slack.com/reference/surfaces/formatting#escaping: these three, and no others.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
