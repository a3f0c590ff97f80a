"""The part of the Python API that is about hooks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from functools import cached_property
from typing import Any, TypeVar

from celery_dlq.group import Group
from celery_dlq.hooks.announcer import Announcer
from celery_dlq.hooks.event import EventHook, EventKind
from celery_dlq.hooks.registry import Hooks
from celery_dlq.letter import DeadLetter
from celery_dlq.settings import Settings
from celery_dlq.store.base import Operation, Store

OfLetter = TypeVar("OfLetter", bound=EventHook | Callable[[DeadLetter], Any])
OfGroup = TypeVar("OfGroup", bound=EventHook | Callable[[Group], Any])
OfOperation = TypeVar("OfOperation", bound=EventHook | Callable[[Operation], Any])


class HooksAPI:
    """Hooks as users of Python register them, through the dead-letter queue of their app. Each method is
    a decorator, too, and returns what it was given.

    :raises SettingsError: (all of them) what is given cannot be a hook.
    """

    @cached_property
    def settings(self) -> Settings:
        """The validated settings."""
        raise NotImplementedError

    @cached_property
    def store(self) -> Store:
        """Where letters are read that are known by their ids."""
        raise NotImplementedError

    @cached_property
    def hooks(self) -> Hooks:
        """Those of the settings, and the registered ones."""
        return Hooks(lambda: {kind: getattr(self.settings, kind.setting) for kind in EventKind})

    def announcer(self) -> Announcer:
        """What a store tells, so that the hooks are told."""
        return Announcer(
            self.hooks, lambda task_id: self.store.get(task_id), lambda: datetime.now(timezone.utc)
        )

    def on_dead_letter(self, hook: OfLetter) -> OfLetter:
        """Call ``hook`` with every letter that is stored: dead for the first time, or again."""
        self.hooks.register(EventKind.DEAD_LETTER, hook)
        return hook

    def on_new_group(self, hook: OfGroup) -> OfGroup:
        """Call ``hook`` with a group when its first letter is stored."""
        self.hooks.register(EventKind.NEW_GROUP, hook)
        return hook

    def on_regression(self, hook: OfGroup) -> OfGroup:
        """Call ``hook`` with a group that is back: a letter of it was stored after it was resolved, or
        when it is to be ignored no longer."""
        self.hooks.register(EventKind.REGRESSION, hook)
        return hook

    def on_operation_aborted(self, hook: OfOperation) -> OfOperation:
        """Call ``hook`` with an operation that its guard has ended."""
        self.hooks.register(EventKind.OPERATION_ABORTED, hook)
        return hook

    def on_redriven(self, hook: OfLetter) -> OfLetter:
        """Call ``hook`` with every letter whose message the broker has again."""
        self.hooks.register(EventKind.REDRIVEN, hook)
        return hook

    def on_resolved(self, hook: OfLetter) -> OfLetter:
        """Call ``hook`` with every letter whose message succeeded."""
        self.hooks.register(EventKind.RESOLVED, hook)
        return hook
