"""Hooks: the user's callables for events of letters, and some ready-made ones.

A store's notes about its writes enter. Each becomes an event, and every hook for it is called in a thread of
its own. The room imports neither Celery nor the store's SQL.
"""

from celery_dlq.hooks.event import Event, EventHook, EventKind
from celery_dlq.hooks.services import Log, Sentry, Slack, Webhook

__all__ = ["Event", "EventHook", "EventKind", "Log", "Sentry", "Slack", "Webhook"]
