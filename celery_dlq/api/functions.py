"""The part of the Python API that registers functions of the user: hooks, repairs, upgrades, and handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from celery_dlq.api.parts import AppParts
from celery_dlq.errors import SettingsError, UnknownHandler, page
from celery_dlq.hooks.event import EventHook, EventKind, find_hook, shown
from celery_dlq.known import names_its_arguments, unknown_name
from celery_dlq.model.auto_redrive import AutoStatus
from celery_dlq.model.group import Group
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.worker import Stall
from celery_dlq.redrive.functions import RepairFunction, Upgrade, functions_of, numbers_of
from celery_dlq.settings.validation import Allowed
from celery_dlq.store.base import Filter, Operation
from celery_dlq.worker.task import DLQTask

if TYPE_CHECKING:
    from celery_dlq.upkeep.handlers.calling import HandlerTrial
    from celery_dlq.upkeep.handlers.definition import Handler, HandlerFunction

OfLetter = TypeVar("OfLetter", bound=EventHook | Callable[[DeadLetter], Any])
OfGroup = TypeVar("OfGroup", bound=EventHook | Callable[[Group], Any])
OfStatus = TypeVar("OfStatus", bound=EventHook | Callable[[AutoStatus], Any])
OfStall = TypeVar("OfStall", bound=EventHook | Callable[[Stall], Any])
OfOperation = TypeVar("OfOperation", bound=EventHook | Callable[[Operation], Any])


HandlerT = TypeVar("HandlerT", bound="HandlerFunction")
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

_EVERY_LETTER = Filter()


class FunctionsAPI(AppParts):
    """The methods of a dead-letter queue that register hooks, repairs, upgrades and handlers. Each ``on_``
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

    @cached_property
    def handlers(self) -> dict[str, Handler]:
        """The handlers by name, in the order of their registration."""
        return {}

    @names_its_arguments(SettingsError, "@handler")
    def handler(
        self,
        *,
        where: Filter = _EVERY_LETTER,
        all: bool = False,
        timeout: float = 60.0,
        version: str = "1",
        per_hour: int = 1_000,
        once_per_group: bool = False,
        name: str | None = None,
        queue: str | None = None,
    ) -> Callable[[HandlerT], HandlerT]:
        """Register a function that decides about dead letters: a decorator. The function gets a
        :class:`~celery_dlq.HandlerLetter`, and returns a ``Redrive``, ``Discard``, ``Ticket``, ``Escalate``
        or ``Leave``. Of several handlers that match a letter, the one registered first gets it; if that
        leaves the letter, the next one does.

        :param where: the letters that it gets, as far as they are dead.
        :param all: give it every dead letter. A ``where`` that matches everything needs this.
        :param timeout: seconds that a call may take.
        :param version: it is called once for each failure of a letter and each version.
        :param per_hour: how often it is called within an hour.
        :param once_per_group: give it one letter of each group. Only such a handler may return a ``Ticket``
            or an ``Escalate``.
        :param name: its name in the audit and on the command line; by default that of the function. An
            object that can be called has no name of its own.
        :param queue: the queue of its messages; by default ``dlq_handler_queue``.
        :raises SettingsError: a value is not allowed, or another function has this name.
        """
        from celery_dlq.upkeep.handlers.definition import Handler

        def register(function: HandlerT) -> HandlerT:
            named = _own_name(function) if name is None else name
            new = Handler(
                name=named, function=function, where=where, all=all, timeout=timeout,
                version=version, per_hour=per_hour, once_per_group=once_per_group, queue=queue,
            )  # fmt: skip
            self._add(new)
            return function

        return register

    def try_handler(
        self, name: str, *, ids: Sequence[str] = (), limit: int = 20
    ) -> Iterator[HandlerTrial]:
        """The verdicts that a handler would return. It is called in this process, with real letters; nothing
        is sent or changed, except by the handler itself.

        :param ids: the letters; by default those that it would get next.
        :param limit: the most letters, if no ids are given.
        :raises UnknownHandler: the app has no handler of this name.
        """
        from celery_dlq.upkeep.handlers.calling import Caller, dry_run, next_ids

        handler = self.handler_named(name)
        chosen = ids or next_ids(self.store, self.handlers, handler, limit)
        caller = Caller(self.app, self.redactor, self.store.now)
        return dry_run(self.store, caller, handler, chosen)

    def handler_named(self, name: str) -> Handler:
        """The handler with this name. The app's modules are imported first.

        :raises UnknownHandler: the app has none.
        """
        self.app.loader.import_default_modules()
        if name not in self.handlers:
            if not self.handlers:
                raise UnknownHandler("This app has no repair handlers; see @dlq.handler.")
            raise UnknownHandler(unknown_name("a handler of this app", name, self.handlers))
        return self.handlers[name]

    def _add(self, new: Handler) -> None:
        known = self.handlers.get(new.name)
        if known is not None and _is_another(known.function, new.function):
            raise SettingsError(
                f"Handler {new.name}: {shown(known.function)} has this name already; give "
                f"{shown(new.function)} another one by name=."
            )
        if not self.handlers:
            self._install()
        self.handlers[new.name] = new

    def _install(self) -> None:
        """Let workers run handlers. Without handlers, none of this is imported."""
        from celery import Task

        from celery_dlq.model.handling import HANDLE_TASK
        from celery_dlq.upkeep.handlers.calling import register_task

        # Its failures must not become letters.
        base = Task if issubclass(self.app.Task, DLQTask) else None
        register_task(self.app, HANDLE_TASK, self, base)


def _own_name(function: object) -> str:
    found = getattr(function, "__name__", None)
    if not isinstance(found, str):
        raise SettingsError(
            f"This handler is an object of {shown(function)}, which has no name of its own; give one: "
            f'@dlq.handler(name="…"). See {page("repair-and-escalate")}.'
        )
    return found


def _check_new(what: str, known: RepairFunction | None, new: RepairFunction) -> None:
    """Check that ``new`` can be registered.

    :param known: the function that was registered in its place.
    :raises SettingsError: it cannot be called, or another function is known.
    """
    find_hook(new)
    if known is not None and _is_another(known, new):
        raise SettingsError(
            f"{what}: {shown(known)} is registered so already; remove it, or {shown(new)}."
        )


def _is_another(known: object, new: object) -> bool:
    """Whether these are two functions. One function comes twice if its module is imported twice."""
    if shown(known) != shown(new):
        return True
    # All objects of a class come from one place. Those of a dataclass can be compared.
    return is_dataclass(new) and known != new
