"""The methods of the Python API that register hooks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from functools import cached_property
from typing import Any, TypeVar

from celery_dlq.api.parts import AppParts
from celery_dlq.hooks.announcer import Announcer
from celery_dlq.hooks.caller import Caller
from celery_dlq.hooks.event import EventHook, EventKind
from celery_dlq.hooks.registry import Hooks
from celery_dlq.model.auto_redrive import AutoStatus
from celery_dlq.model.group import Group
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.stall import Stall
from celery_dlq.store.base import Operation

OfLetter = TypeVar("OfLetter", bound=EventHook | Callable[[DeadLetter], Any])
OfGroup = TypeVar("OfGroup", bound=EventHook | Callable[[Group], Any])
OfStatus = TypeVar("OfStatus", bound=EventHook | Callable[[AutoStatus], Any])
OfStall = TypeVar("OfStall", bound=EventHook | Callable[[Stall], Any])
OfOperation = TypeVar("OfOperation", bound=EventHook | Callable[[Operation], Any])


class HooksAPI(AppParts):
    """The methods of a dead-letter queue that register hooks. Each is also a decorator: it returns its
    argument.

    :raises SettingsError: from each of them, if the argument cannot be a hook.
    """

    @cached_property
    def hooks(self) -> Hooks:
        """The hooks that the settings name, and those that were registered."""
        return Hooks(
            lambda: {kind: getattr(self.settings, kind.setting) for kind in EventKind},
            routes=lambda: self.settings.routes,
            make_caller=lambda hook: Caller(hook, redactor=self.redactor, owner_of=self.owner_of),
        )

    def announcer(self) -> Announcer:
        """A listener for the store that calls the hooks."""
        return Announcer(
            self.hooks,
            lambda task_id: self.store.letters.get(task_id),
            lambda task_ids: self.store.letters.read_routes(task_ids),
            lambda: datetime.now(timezone.utc),
        )

    def on_dead_letter(self, hook: OfLetter) -> OfLetter:
        """Call ``hook`` with every letter that is stored: dead for the first time, or again."""
        return self.hooks.register(EventKind.DEAD_LETTER, hook)

    def on_new_group(self, hook: OfGroup) -> OfGroup:
        """Call ``hook`` with a group when its first letter is stored."""
        return self.hooks.register(EventKind.NEW_GROUP, hook)

    def on_regression(self, hook: OfGroup) -> OfGroup:
        """Call ``hook`` with a group that failed again: a letter was stored after the group was
        resolved, or after its ignoring ended."""
        return self.hooks.register(EventKind.REGRESSION, hook)

    def on_operation_aborted(self, hook: OfOperation) -> OfOperation:
        """Call ``hook`` with an operation that its guard has aborted."""
        return self.hooks.register(EventKind.OPERATION_ABORTED, hook)

    def on_auto_redrive_suspended(self, hook: OfStatus) -> OfStatus:
        """Call ``hook`` with the status of an automatic redrive that has suspended itself."""
        return self.hooks.register(EventKind.AUTO_REDRIVE_SUSPENDED, hook)

    def on_worker_stalled(self, hook: OfStall) -> OfStall:
        """Call ``hook`` in a stalled worker, with what it has seen."""
        return self.hooks.register(EventKind.WORKER_STALLED, hook)

    def on_redriven(self, hook: OfLetter) -> OfLetter:
        """Call ``hook`` with every letter that was redriven: the broker has confirmed its message."""
        return self.hooks.register(EventKind.REDRIVEN, hook)

    def on_resolved(self, hook: OfLetter) -> OfLetter:
        """Call ``hook`` with every letter whose message succeeded."""
        return self.hooks.register(EventKind.RESOLVED, hook)
