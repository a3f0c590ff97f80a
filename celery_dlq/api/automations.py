"""The part of the Python API for redrives, edits and automations. Automations are the automatic redrives of
the settings, and handlers, which are registered; both are stopped, tried and run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from celery_dlq.api.functions import FunctionsAPI, is_another
from celery_dlq.base.known import names_its_arguments, unknown_name
from celery_dlq.errors import MessageChanged, SettingsError, UnknownAutomation, UnknownLetter, page
from celery_dlq.hooks.event import shown
from celery_dlq.model.automation import EVERY, AutoState
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.worker.task import DLQTask

if TYPE_CHECKING:
    from celery_dlq.redrive.context import RedriveContext
    from celery_dlq.redrive.operation import Operations
    from celery_dlq.upkeep.automation.calling import HandlerTrial
    from celery_dlq.upkeep.automation.definition import AutoRedrive, Handler, HandlerFunction
    from celery_dlq.upkeep.automation.engine import Engine
    from celery_dlq.upkeep.automation.redriver import Look


HandlerT = TypeVar("HandlerT", bound="HandlerFunction")

_EVERY_LETTER = Filter()


class AutomationAPI(FunctionsAPI):
    """The methods of a dead-letter queue for redrives, edits, handlers and automatic redrives."""

    @cached_property
    def redrives(self) -> Operations:
        """Plans, starts and stops redrives."""
        from celery_dlq.redrive.operation import Operations

        return Operations(self.redrive_context)

    @cached_property
    def redrive_context(self) -> RedriveContext:
        """The app as its redrives see it."""
        from celery_dlq.redrive.context import Clock, RedriveContext

        # A letter is sent only if its task is registered in this app.
        self.app.loader.import_default_modules()
        return RedriveContext(
            app=self.app, store=self.store, settings=self.settings,
            redactor=self.redactor, reports=self._reports, clock=Clock(now=self.store.now),
            proposes=self.proposes,
        )  # fmt: skip

    def _reports(self, task: str) -> bool:
        """Whether workers report the outcomes of the messages of ``task``."""
        return isinstance(self.app.tasks.get(task), DLQTask)

    def edit(
        self,
        task_id: str,
        *,
        who: str,
        why: str = "",
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        headers: Mapping[str, Any] | None = None,
        seen: str | None = None,
    ) -> str:
        """Change the message of a dead letter, which a redrive then sends; the earlier message stays in
        the letter's history. Parts that are None do not change. Returns the change as lines of a diff,
        with secrets hidden.

        :param why: for the audit.
        :param seen: the ``digest_of()`` of the message that was looked at; None for any message.
        :raises UnknownLetter: no letter has this id.
        :raises MessageChanged: the letter has another message by now.
        :raises RepairError: it is not dead, or it cannot be changed like this.
        :raises ApprovalNeeded: a second person has to approve it. The request was made, nothing else.
        """
        from celery_dlq.redrive.letter.edit import digest_of, make_edit, text_of

        letter = self.store.letters.get(task_id)
        if letter is None:
            raise UnknownLetter
        if seen is not None and seen != digest_of(letter.envelope):
            raise MessageChanged
        given = {"args": args, "kwargs": kwargs, "headers": headers}
        changes = {name: value for name, value in given.items() if value is not None}
        now = self.store.now()
        edit = make_edit(self.app, letter, changes, self.redactor, who=who, why=why, at=now)
        self.gate.check(
            "edit", Filter(ids=(task_id,), states=frozenset({State.DEAD})), who=who, why=why,
            changes={name: text_of(value) for name, value in changes.items()},
            shown={"change": edit.diff},
        )  # fmt: skip
        if not self.store.edits.save(edit):
            raise MessageChanged
        return edit.diff

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
        from celery_dlq.upkeep.automation.definition import Handler

        def register(function: HandlerT) -> HandlerT:
            named = _own_name(function) if name is None else name
            new = Handler(
                name=named, function=function, where=where, all=all, timeout=timeout,
                version=version, per_hour=per_hour, once_per_group=once_per_group, queue=queue,
            )  # fmt: skip
            self._add(new)
            return function

        return register

    def _add(self, new: Handler) -> None:
        known = self.handlers.get(new.name)
        if known is not None and is_another(known.function, new.function):
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
        from celery_dlq.upkeep.automation.calling import register_task

        # Its failures must not become letters.
        base = Task if issubclass(self.app.Task, DLQTask) else None
        register_task(self.app, HANDLE_TASK, self, base)

    @cached_property
    def automations(self) -> Engine:
        """Runs the automatic redrives of the settings, and the handlers.

        :raises SettingsError: a definition does not fit the app.
        """
        from celery_dlq.upkeep.automation.engine import Engine

        return Engine(self.redrive_context, self.redrives, self.handlers)

    @property
    def all_automations(self) -> Sequence[AutoRedrive | Handler]:
        """The automatic redrives of the settings, and the handlers. The app's modules are imported first."""
        self.app.loader.import_default_modules()
        return (*self.settings.auto_redrive, *self.handlers.values())

    def automation_named(self, name: str) -> AutoRedrive | Handler:
        """The automatic redrive or the handler with this name.

        :raises UnknownAutomation: the app has none.
        """
        known = {auto.name: auto for auto in self.all_automations}
        if name not in known:
            raise UnknownAutomation(unknown_name("an automation of this app", name, known))
        return known[name]

    def pause_auto(self, name: str = EVERY, *, who: str, why: str = "") -> bool:
        """Stop an automatic redrive or a handler, or all of them, until a person resumes it. A running
        operation is cancelled before its next batch. Returns whether the automation was active before.

        :raises UnknownAutomation: the app has none with this name.
        """
        return self._set_auto(name, AutoState.PAUSED, who, why)

    def resume_auto(self, name: str = EVERY, *, who: str, why: str = "") -> bool:
        """Let an automatic redrive or a handler that was stopped run again, or lift the pause of all of them.
        Returns whether it was stopped before.

        :raises UnknownAutomation: the app has none with this name.
        """
        return self._set_auto(name, AutoState.ACTIVE, who, why)

    def run_auto(self, name: str, *, who: str) -> None:
        """Let a worker look for the letters of an automatic redrive at once, instead of at the next time of
        its timetable.

        :raises UnknownAutomation: no automatic redrive has this name.
        """
        self._auto_redrive_named(name)
        self.store.automations.make_due(name, who=who, now=self.store.now())

    def try_auto(self, name: str) -> Look:
        """The result of an automatic redrive if it looked for letters now. Nothing is sent or changed.

        :raises UnknownAutomation: no automatic redrive has this name.
        """
        self._auto_redrive_named(name)
        return self.automations.look(name)

    def try_handler(
        self, name: str, *, ids: Sequence[str] = (), limit: int = 20
    ) -> Iterator[HandlerTrial]:
        """The verdicts that a handler would return. It is called in this process, with real letters; nothing
        is sent or changed, except by the handler itself.

        :param ids: the letters; by default those that it would get next.
        :param limit: the most letters, if no ids are given.
        :raises UnknownAutomation: no handler has this name.
        """
        from celery_dlq.upkeep.automation.calling import Caller, dry_run, earlier_than

        self.automation_named(name)
        handler = self.handlers.get(name)
        if handler is None:
            raise UnknownAutomation(f"{name!r} is an automatic redrive, and calls no function.")
        if not ids:
            earlier = earlier_than(handler, self.handlers)
            found = self.store.automations.candidates(handler.scope, earlier, limit=limit)
            ids = [one.task_id for one in found]
        caller = Caller(self.app, self.redactor, self.store.now)
        return dry_run(self.store, caller, handler, ids)

    def _auto_redrive_named(self, name: str) -> None:
        self.automation_named(name)
        if name in self.handlers:
            raise UnknownAutomation(f"{name!r} is a handler, and gets letters without a timetable.")

    def _set_auto(self, name: str, state: AutoState, who: str, why: str) -> bool:
        if name != EVERY:
            self.automation_named(name)
        now = self.store.now()
        return self.store.automations.set_state(name, state, who=who, why=why, now=now)


def _own_name(function: object) -> str:
    found = getattr(function, "__name__", None)
    if not isinstance(found, str):
        raise SettingsError(
            f"This handler is an object of {shown(function)}, which has no name of its own; give one: "
            f'@dlq.handler(name="…"). See {page("repair-and-escalate")}.'
        )
    return found
