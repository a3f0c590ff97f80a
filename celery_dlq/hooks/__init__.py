"""The user's callables that are told what happens to letters, and some that are ready."""

from celery_dlq.hooks.event import Event, EventHook, EventKind
from celery_dlq.hooks.log import Log
from celery_dlq.hooks.sentry import Sentry
from celery_dlq.hooks.slack import Slack
from celery_dlq.hooks.webhook import Webhook

__all__ = ["Event", "EventHook", "EventKind", "Log", "Sentry", "Slack", "Webhook"]
