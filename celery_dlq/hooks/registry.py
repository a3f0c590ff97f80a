"""The hooks of an app, from its settings and from registration."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from celery_dlq.errors import SettingsError
from celery_dlq.hooks.caller import Caller, Waiting
from celery_dlq.hooks.event import (
    OF_ROUTES,
    Event,
    EventHook,
    EventKind,
    Hook,
    find_hook,
    problem_of,
    shown,
)
from celery_dlq.model.route import Route

logger: logging.Logger = logging.getLogger(__name__)

GivenHook = TypeVar("GivenHook", bound=Hook)

#: Seconds that the end of a process waits for hooks.
FINISH_S = 10.0


class Hooks:
    """Passes each event to its hooks.

    :param settings: the hooks in the settings by the kind of event; read once, when they are first needed.
    :param routes: the routes, each with its hooks; read at the same time.
    :param make_caller: makes the caller of a hook.
    """

    def __init__(
        self,
        settings: Callable[[], Mapping[EventKind, Sequence[Any]]],
        *,
        routes: Callable[[], Sequence[Route]] = tuple,
        make_caller: Callable[[Hook], Caller] = Caller,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._routes = settings, routes
        self._make_caller, self._monotonic = make_caller, monotonic
        self._registered: list[tuple[EventKind, Hook]] = []
        #: None until they are needed.
        self._by_kind: Mapping[EventKind, Sequence[Caller]] | None = None
        self._by_route: Mapping[str, Sequence[Caller]] | None = None
        self._callers: list[Caller] = []
        self._lock = threading.Lock()

    def register(self, kind: EventKind, hook: GivenHook) -> GivenHook:
        """Call ``hook`` with events of ``kind``, too; returns it.

        :raises SettingsError: it cannot be a hook.
        """
        found = find_hook(hook)
        with self._lock:
            self._registered.append((kind, found))
            self._by_kind = None
        return hook

    def wants(self, kind: EventKind) -> bool:
        """Whether a hook may be called with an event of this kind."""
        return bool(self._for(kind)) or (kind in OF_ROUTES and bool(self._of_routes()))

    def tell(self, event: Waiting) -> None:
        """Pass ``event`` to all hooks for it: those for its kind, and those of its route. Returns at once."""
        of_route = self._of_routes().get(event.route, ())
        # A hook for both is called once.
        for caller in dict.fromkeys((*self._for(event.kind), *of_route)):
            caller.put(event)

    def check(self) -> None:
        """Check every hook in the settings. Imports those that are named.

        :raises SettingsError: a hook cannot be imported or called.
        """
        given = [
            *((f"dlq_hooks: {kind.value!r}", hooks) for kind, hooks in self._settings().items()),
            *((f"dlq_routes: {route.name!r}", route.hooks) for route in self._routes()),
        ]
        wrong = [
            f"{place}: {problem}"
            for place, hooks in given
            for problem in filter(None, map(problem_of, hooks))
        ]
        if wrong:
            raise SettingsError(f"Hooks that could never be called: {' '.join(wrong)}")

    def finish(self, within_s: float = FINISH_S) -> None:
        """Return when all waiting events are announced, or after this many seconds; then the rest is
        dropped."""
        until = self._monotonic() + within_s
        for caller in self._callers:
            caller.finish(until)

    def status(self) -> dict[str, dict[str, int]]:
        """How many events wait for each hook, were dropped, or made it raise."""
        return {
            caller.name: {
                "waiting": caller.waiting, "dropped": caller.dropped, "failed": caller.failed
            }
            for caller in self._callers
        }  # fmt: skip

    def _for(self, kind: EventKind) -> Sequence[Caller]:
        found = self._by_kind
        if found is None:
            with self._lock:
                found = self._by_kind = {
                    each: tuple(map(self._caller, self._hooks(each))) for each in EventKind
                }
        return found[kind]

    def _of_routes(self) -> Mapping[str, Sequence[Caller]]:
        """The callers of each route that has hooks."""
        found = self._by_route
        if found is None:
            with self._lock:
                found = self._by_route = {
                    route.name: callers
                    for route in self._routes()
                    if (callers := tuple(map(self._caller, _of_route(route))))
                }
        return found

    def _hooks(self, kind: EventKind) -> Iterator[Hook]:
        yield from _usable(f"dlq_hooks: {kind.value!r}", self._settings().get(kind, ()))
        yield from (hook for wanted, hook in self._registered if wanted is kind)

    def _caller(self, hook: Hook) -> Caller:
        """The caller of ``hook``: a hook for two kinds has one caller, and so one thread."""
        for caller in self._callers:
            if caller.hook == hook:
                return caller
        if not self._callers:
            # The threads of hooks do not keep a process alive.
            atexit.register(self.finish)
        caller = self._make_caller(hook)
        self._callers.append(caller)
        return caller


def _of_route(route: Route) -> Iterator[Hook]:
    for hook in _usable(f"dlq_routes: {route.name!r}", route.hooks):
        yield hook if isinstance(hook, EventHook) else RouteHook(hook)


def _usable(place: str, given: Sequence[Any]) -> Iterator[Hook]:
    """The hooks among ``given`` that can be called; the others are logged, with their ``place``."""
    for one in given:
        problem = problem_of(one)
        if problem:
            logger.error("%s: %s", place, problem)
        else:
            yield find_hook(one)


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
