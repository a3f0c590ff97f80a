"""Messages for Slack, and for services with the same format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from celery_dlq.hooks.event import Event, EventHook, EventValue
from celery_dlq.hooks.post import Poster
from celery_dlq.hooks.words import LINE_LIMIT, flat, headline, line
from celery_dlq.model.auto_redrive import AutoStatus
from celery_dlq.model.group import Group
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.stall import Stall
from celery_dlq.redact import clip
from celery_dlq.store.base import Operation

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
