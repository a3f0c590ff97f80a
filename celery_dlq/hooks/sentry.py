"""Events for Sentry."""

from __future__ import annotations

from typing import Any

from celery_dlq.errors import SettingsError
from celery_dlq.hooks.event import GOOD_NEWS, Event, EventHook
from celery_dlq.hooks.words import data, line
from celery_dlq.model.group import Group
from celery_dlq.model.letter import DeadLetter


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
