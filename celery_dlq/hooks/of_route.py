"""The hooks of routes, which get whole events."""

from __future__ import annotations

from celery_dlq.hooks.event import Event, EventHook, Hook
from celery_dlq.hooks.lookup import shown


class RouteHook(EventHook):
    """Calls a plain callable with the whole event: it is called for several kinds, and its value alone would
    not tell it which."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        # Its name in logs and in the status of hooks.
        self.__module__, _, self.__qualname__ = shown(hook).rpartition(".")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RouteHook) and other._hook == self._hook

    def __hash__(self) -> int:
        return hash((RouteHook, id(self._hook)))

    def __call__(self, event: Event) -> None:
        self._hook(event)


def with_events(hook: Hook) -> EventHook:
    """``hook`` as one that gets whole events."""
    return hook if isinstance(hook, EventHook) else RouteHook(hook)
