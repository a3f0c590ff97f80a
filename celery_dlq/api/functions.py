"""The part of the Python API that registers functions of the user: hooks, repairs and upgrades."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Any, TypeVar

from celery_dlq.api.parts import AppParts
from celery_dlq.errors import SettingsError, page
from celery_dlq.hooks.event import EventHook, EventKind, find_hook, shown
from celery_dlq.model.audit import AuditHead
from celery_dlq.model.automation import AutoStatus
from celery_dlq.model.group import Group
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.worker import Stall
from celery_dlq.redrive.letter.functions import RepairFunction, Upgrade, functions_of, numbers_of
from celery_dlq.settings.validation import Allowed
from celery_dlq.store.base import Operation

OfLetter = TypeVar("OfLetter", bound=EventHook | Callable[[DeadLetter], Any])
OfGroup = TypeVar("OfGroup", bound=EventHook | Callable[[Group], Any])
OfStatus = TypeVar("OfStatus", bound=EventHook | Callable[[AutoStatus], Any])
OfStall = TypeVar("OfStall", bound=EventHook | Callable[[Stall], Any])
OfHead = TypeVar("OfHead", bound=EventHook | Callable[[AuditHead], Any])
OfOperation = TypeVar("OfOperation", bound=EventHook | Callable[[Operation], Any])


RepairT = TypeVar("RepairT", bound=RepairFunction)

_REPAIR_NAME = Allowed(
    "a name of 1 to 100 printable characters, without blanks at its ends",
    lambda name: (
        isinstance(name, str)
        and 0 < len(name) <= 100
        and name.isprintable()
        and name == name.strip()
    ),
)


class FunctionsAPI(AppParts):
    """The methods of a dead-letter queue that register hooks, repairs and upgrades. Each ``on_``
    method is also a decorator: it returns its argument.

    :raises SettingsError: from each of them, if the argument cannot be a hook.
    """

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
        """Call ``hook`` in a stalled worker, with the facts about the stall."""
        return self.hooks.register(EventKind.WORKER_STALLED, hook)

    def on_redriven(self, hook: OfLetter) -> OfLetter:
        """Call ``hook`` with every letter that was redriven: the broker has confirmed its message."""
        return self.hooks.register(EventKind.REDRIVEN, hook)

    def on_resolved(self, hook: OfLetter) -> OfLetter:
        """Call ``hook`` with every letter whose message succeeded."""
        return self.hooks.register(EventKind.RESOLVED, hook)

    def on_audit(self, hook: OfHead) -> OfHead:
        """Call ``hook`` with the new head of the audit's chain after each act, so that it can be kept
        elsewhere."""
        return self.hooks.register(EventKind.AUDIT, hook)

    @property
    def repairs(self) -> Mapping[str, RepairFunction]:
        """The repairs by name, in the order of their registration. The app's modules are imported first."""
        self.app.loader.import_default_modules()
        return functions_of(self.app).repairs

    def repair(self, name: str) -> Callable[[RepairT], RepairT]:
        """Register a function that changes a message: a decorator. The function gets copies of args, kwargs
        and headers, and returns the three new values, or None to leave the letter out.

        :param name: its name in ``dlq redrive --repair``, in Flower, and in ``Repair(function=…)``.
        :raises SettingsError: the name is not allowed, or another function has it.
        """
        if not _REPAIR_NAME.accepts(name):
            raise SettingsError(
                f"@dlq.repair({name!r}): give {_REPAIR_NAME.words}. See {page('repair-letters')}."
            )
        repairs = functions_of(self.app).repairs

        def register(function: RepairT) -> RepairT:
            _check_new(f"@dlq.repair({name!r})", repairs.get(name), function)
            repairs[name] = function
            return function

        return register

    def upgrade(self, task: str, *, to: str) -> Callable[[RepairT], RepairT]:
        """Register a function that brings the messages of a task to its arguments in a release: a decorator.
        The function is like a repair. It is called whenever a letter of an earlier release is sent back.

        :param task: the whole name of the task.
        :param to: the release, as in ``dlq_release``.
        :raises SettingsError: a value is not allowed, or there is another upgrade to this release.
        """
        if not isinstance(task, str) or not task:
            raise SettingsError(f"@dlq.upgrade({task!r}): give the name of a task.")
        if not isinstance(to, str) or numbers_of(to) is None:
            raise SettingsError(
                f"@dlq.upgrade({task!r}): to={to!r} has no place among the releases; give one that ends with "
                f"numbers, such as 2026.12 or v1.4.0. See {page('repair-letters')}."
            )
        functions = functions_of(self.app)

        def register(function: RepairT) -> RepairT:
            known = {one.to: one.function for one in functions.upgrades.get(task, ())}
            _check_new(f"@dlq.upgrade({task!r}, to={to!r})", known.get(to), function)
            functions.add_upgrade(Upgrade(task=task, to=to, function=function))
            return function

        return register


def _check_new(what: str, known: RepairFunction | None, new: RepairFunction) -> None:
    """Check that ``new`` can be registered.

    :param known: the function that was registered in its place.
    :raises SettingsError: it cannot be called, or another function is known.
    """
    find_hook(new)
    if known is not None and is_another(known, new):
        raise SettingsError(
            f"{what}: {shown(known)} is registered so already; remove it, or {shown(new)}."
        )


def is_another(known: object, new: object) -> bool:
    """Whether these are two functions. One function comes twice if its module is imported twice."""
    if shown(known) != shown(new):
        return True
    # All objects of a class come from one place. Those of a dataclass can be compared.
    return is_dataclass(new) and known != new
