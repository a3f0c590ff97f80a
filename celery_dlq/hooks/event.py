"""The events that hooks get, and how a setting names a hook."""

from __future__ import annotations

import hashlib
import inspect
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, TypeAlias

from celery_dlq.base.redact import Redactor, safe_message
from celery_dlq.errors import SettingsError
from celery_dlq.model.audit import AuditHead
from celery_dlq.model.automation import AutoStatus
from celery_dlq.model.group import Group
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.worker import Stall
from celery_dlq.store.base import Operation
from celery_dlq.store.hiding import hide_group, hide_letter, hide_operation, hide_status

_REDACTOR = Redactor()

#: The value of an event.
EventValue: TypeAlias = DeadLetter | Group | Operation | AutoStatus | Stall | AuditHead


class EventKind(str, Enum):
    """The kind of event: the key of its hooks in the setting ``dlq_hooks``."""

    #: A message became a dead letter, for the first time or again. The value is the letter.
    DEAD_LETTER = "dead_letter"
    #: The first letter of a group arrived. The value is the group.
    NEW_GROUP = "new_group"
    #: A letter arrived in a group that was resolved, or that was ignored until now. The value is the group.
    REGRESSION = "regression"
    #: The guard of an operation aborted it. The value is the operation.
    OPERATION_ABORTED = "operation_aborted"
    #: An automatic redrive has suspended itself. The value is its status.
    AUTO_REDRIVE_SUSPENDED = "auto_redrive_suspended"
    #: A worker receives nothing, although messages wait and it has free slots. The value is the stall.
    WORKER_STALLED = "worker_stalled"
    #: A letter was redriven: the broker has confirmed its message. The value is the letter as it is now in
    #: the store.
    REDRIVEN = "redriven"
    #: A letter's message succeeded. The value is the letter as it is now in the store.
    RESOLVED = "resolved"
    #: The audit was written. The value is the new head of its chain.
    AUDIT = "audit"


#: The kinds with which the hooks of a route are called.
OF_ROUTES = frozenset({EventKind.DEAD_LETTER, EventKind.NEW_GROUP, EventKind.REGRESSION})

#: The kinds that need no one's attention.
GOOD_NEWS = frozenset({EventKind.REDRIVEN, EventKind.RESOLVED, EventKind.AUDIT})


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event."""

    kind: EventKind
    #: The time of the write to the store; the failure itself may have been earlier.
    at: datetime
    value: EventValue
    #: The owner of its route, by the settings; empty if it has none.
    route_owner: str = ""
    #: Hides secrets in data that is sent to other services.
    redactor: Redactor = field(default=_REDACTOR, repr=False, compare=False)

    @property
    def shown(self) -> EventValue:
        """The value, without secrets. The body of a letter's message is unchanged."""
        value = self.value
        if isinstance(value, DeadLetter):
            return hide_letter(value, self.redactor)
        if isinstance(value, Group):
            return hide_group(value, self.redactor)
        if isinstance(value, AutoStatus):
            return hide_status(value, self.redactor)
        if isinstance(value, (Stall, AuditHead)):
            return value
        return hide_operation(value, self.redactor)

    @property
    def route(self) -> str:
        """The name of the route of the letter or group; empty if it is on none."""
        return route_of(self.value)

    @property
    def owner(self) -> str:
        """Who looks after it: the person or team that the group is assigned to, else the owner of the
        route; empty if unknown."""
        assigned = self.value.owner if isinstance(self.value, Group) else ""
        return assigned or self.route_owner

    @property
    def id(self) -> str:
        """32 hexadecimal digits, which are the same for each delivery of the event."""
        parts = (self.kind.value, *map(str, _identity(self.value)))
        return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:32]


class EventHook(ABC):
    """A hook that gets the whole event, and so can serve for any kind. Plain callables get only its
    value."""

    @abstractmethod
    def __call__(self, event: Event) -> object:
        """Handle the event. The call runs in a thread of its own; it may be slow, and it may raise."""


#: A hook that can be set or registered.
Hook: TypeAlias = EventHook | Callable[[Any], object]


def route_of(value: EventValue) -> str:
    """The name of the route of a letter or group; empty if it is on none."""
    return value.route if isinstance(value, (DeadLetter, Group)) else ""


def _identity(value: EventValue) -> tuple[object, ...]:
    if isinstance(value, DeadLetter):
        return value.task_id, value.redrive_count, value.last_failed_at, value.closed_at
    if isinstance(value, Group):
        return value.fingerprint, value.task, value.exception_type, value.last_seen_at
    if isinstance(value, AutoStatus):
        return value.name, value.at
    if isinstance(value, Stall):
        return value.worker, value.since
    if isinstance(value, AuditHead):
        return (str(value),)
    return (value.id,)


def find_hook(given: Any) -> Hook:
    """``given`` itself, or the hook that it names: a dotted name is imported.

    :raises SettingsError: ``given`` cannot be imported, or cannot be a hook.
    """
    found = _imported(given) if isinstance(given, str) else given
    named = repr(given) if isinstance(given, str) else shown(given)
    if isinstance(found, type):
        raise SettingsError(f"{named} is a class; give an instance of it.")
    if not callable(found):
        raise SettingsError(f"{named} cannot be called; give a function.")
    if inspect.iscoroutinefunction(found):
        raise SettingsError(
            f"{named} is a coroutine function, which would not run; write it with def."
        )
    hook: Hook = found
    return hook


def problem_of(given: Any) -> str:
    """Why ``given`` cannot be a hook; empty if it can."""
    try:
        find_hook(given)
    except SettingsError as error:
        return str(error)
    return ""


def shown(hook: object) -> str:
    """The name of ``hook``, for people."""
    name = getattr(hook, "__qualname__", None)
    module = getattr(hook, "__module__", None)
    if isinstance(name, str) and isinstance(module, str):
        return f"{module}.{name}"
    # The text of an object may contain a password.
    return f"{type(hook).__module__}.{type(hook).__qualname__}"


def _imported(name: str) -> Any:
    try:
        return pkgutil.resolve_name(name)
    except Exception as error:
        raise SettingsError(
            f"{name!r} cannot be imported: {type(error).__name__}: {safe_message(error)}; "
            "give a dotted name such as shop.alerts.page."
        ) from error
