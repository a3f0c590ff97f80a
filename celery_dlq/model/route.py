"""Routes: which dead letters belong together, and what each of them gets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from celery_dlq.base.known import ends_with, names_its_fields, unknown_name
from celery_dlq.errors import SettingsError
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import Reason
from celery_dlq.settings.validation import refuse

#: The most characters of a route's name, which is stored with each letter, and of its owner.
NAME_LIMIT, OWNER_LIMIT = 64, 255

#: The ending of a task's name that stands for any ending.
_ANY = "*"

#: Which letters a route takes.
CONDITIONS = ("task", "exception", "reason", "tag", "group")

_FINGERPRINT = re.compile("[0-9a-f]{1,16}")


@names_its_fields(SettingsError)
@dataclass(frozen=True, repr=False)
class Route:
    """Dead letters that belong together, and what each of them gets.

    A letter is on the first route of ``dlq_routes`` whose conditions it meets. A condition is a text, or a
    tuple of texts: one of them has to match. A letter has to meet every condition that you give.

    :raises SettingsError: a value that is not allowed. The error names it.
    """

    #: Names it in filters; stored with its letters.
    name: str
    _: KW_ONLY
    #: Task name, in full or its last part. A ``*`` at the end stands for any ending.
    task: str | Sequence[str] = ()
    #: Exception type, in full or its last part.
    exception: str | Sequence[str] = ()
    reason: str | Sequence[str] = ()
    #: A tag of the letter's task: see ``dlq_tags``.
    tag: str | Sequence[str] = ()
    #: Fingerprint of a group, or its beginning.
    group: str | Sequence[str] = ()
    #: The person or team that looks after its letters.
    owner: str = ""
    #: Added to the tags of its letters.
    tags: Sequence[str] = ()
    #: Called with each :class:`~celery_dlq.hooks.Event` of its letters and groups: callables, or their dotted
    #: names.
    hooks: Sequence[Any] = ()

    def __post_init__(self) -> None:
        for name in (*CONDITIONS, "tags", "hooks"):
            object.__setattr__(self, name, _as_tuple(name, getattr(self, name)))
        refuse(f"dlq_routes: {self.name!r}", _problems(self), "routes")

    def __repr__(self) -> str:
        # Hooks may hold a password.
        return f"Route({self.name!r})"

    def takes(self, letter: DeadLetter) -> bool:
        """Whether ``letter`` meets its conditions."""
        return (
            (not self.task or any(names_task(given, letter.task) for given in self.task))
            and (
                not self.exception
                or any(ends_with(letter.exception_type, given) for given in self.exception)
            )
            and (not self.reason or letter.reason in self.reason)
            and (not self.tag or any(given in letter.tags for given in self.tag))
            and (not self.group or letter.fingerprint.startswith(tuple(self.group)))
        )


def routed(letter: DeadLetter, routes: Sequence[Route]) -> DeadLetter:
    """``letter`` with the name and the tags of the first of ``routes`` that takes it."""
    for route in routes:
        if route.takes(letter):
            tags = dict.fromkeys((*letter.tags, *route.tags))
            return letter.with_(route=route.name, tags=tuple(tags))
    return letter


def owner_of(name: str, routes: Sequence[Route]) -> str:
    """The owner of the route with this name; empty if the route has no owner, or is not in ``routes``."""
    return next((route.owner for route in routes if route.name == name), "")


def names_task(given: str, task: str) -> bool:
    """Whether ``given`` is the name of ``task``, or its last part; or, with a ``*`` at its end, the beginning
    of either."""
    if given.endswith(_ANY):
        return f".{given[:-1]}" in f".{task}"
    return ends_with(task, given)


def _as_tuple(name: str, given: Any) -> Any:
    if isinstance(given, str):
        # A single text would be read as a tuple of its characters.
        return (given,) if name in CONDITIONS else given
    return tuple(given) if isinstance(given, list) else given


def _problems(route: Route) -> Iterator[str]:
    name = route.name
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_LIMIT:
        yield f"The name must be a text of 1 to {NAME_LIMIT} characters."
    elif name != name.strip() or not name.isprintable():
        yield "The name must have no blanks around it and no characters that cannot be printed."
    for name in CONDITIONS:
        yield from _condition_problems(name, getattr(route, name))
    if not any(getattr(route, name) for name in CONDITIONS):
        yield (
            "It has no condition, so it would take every letter. Give "
            f"{', '.join(CONDITIONS[:-1])} or {CONDITIONS[-1]}; for every letter, give task='*'."
        )
    if not isinstance(route.owner, str) or len(route.owner) > OWNER_LIMIT:
        yield f"owner must be a text of at most {OWNER_LIMIT} characters, not {route.owner!r}."
    if not _is_texts(route.tags):
        yield f"tags must be a tuple of texts, not {route.tags!r}."
    yield from _hook_problems(route.hooks)


def _condition_problems(name: str, given: Any) -> Iterator[str]:
    if not _is_texts(given):
        yield f"{name} must be a text or a tuple of texts, not {given!r}."
        return
    for text in given:
        if name == "reason" and text not in tuple(Reason):
            yield unknown_name("a reason", str(text), [reason.value for reason in Reason])
        elif name == "group" and not _FINGERPRINT.fullmatch(text):
            yield f"group must be a fingerprint or its beginning, such as '9c1e', not {text!r}."
        elif name == "task" and _ANY in text[:-1]:
            yield f"task may have a {_ANY} only at its end, not {text!r}."
        elif name == "exception" and _ANY in text:
            yield f"exception must be the name of a type without {_ANY}, not {text!r}."


def _hook_problems(given: Any) -> Iterator[str]:
    if not isinstance(given, tuple):
        yield f"hooks must be a tuple of callables or their dotted names, not {_shown(given)}."
        return
    for hook in given:
        if not callable(hook) and not (isinstance(hook, str) and hook.strip()):
            yield f"A hook must be a callable or its dotted name, not {_shown(hook)}."


def _shown(given: object) -> str:
    # The text of an object may contain a password.
    name = getattr(given, "__qualname__", None)
    return (
        repr(given) if isinstance(given, (str, int, float)) else str(name or type(given).__name__)
    )


def _is_texts(given: Any) -> bool:
    return isinstance(given, tuple) and all(isinstance(one, str) and one.strip() for one in given)
