"""The error texts for unknown names, and where they are raised."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

#: The most names that are listed; the others are counted.
_LISTED = 40

#: The most names that ``did you mean`` offers; how similar they must be, from 0 to 1; and how much less
#: similar than the nearest one they may be.
_OFFERED, _ALIKE, _CLOSE = 3, 0.65, 0.1


def unknown_name(what: str, given: str, known: Iterable[str]) -> str:
    """A sentence that says that ``given`` is not ``what`` (such as ``a state``), which of the ``known``
    names it may stand for, and which names exist.

    Names are compared whole and by their last parts: ``chagre`` is near to ``shop.charge``.
    """
    names = list(dict.fromkeys(known))
    near = " or ".join(map(repr, near_names(given, names)))
    offer = f" did you mean {near}?" if near else ""
    return f"{given[:80]!r} is not {what};{offer} {_listed(names)}".strip()


def unknown_task(wanted: str | None, tasks: Iterable[str]) -> str:
    """A sentence about an unknown task, if no task has the name ``wanted``, whole or as its last parts;
    otherwise empty. A filter without a task names none."""
    names = sorted(tasks)
    if not wanted or any(ends_with(name, wanted) for name in names):
        return ""
    return unknown_name("a task of this app", wanted, names)


def ends_with(name: str, given: str) -> bool:
    """Whether ``given`` is the dotted name ``name``, or its last parts."""
    return f".{name}".endswith(f".{given}")


def near_names(given: str, known: Iterable[str], *, alike: float = _ALIKE) -> list[str]:
    """The known names that are most similar, the nearest first.

    :param alike: how similar they must be, from 0 to 1.
    """
    scores = {name: _likeness(given.casefold(), name.casefold()) for name in known}
    least = max(alike, max(scores.values(), default=0.0) - _CLOSE)
    near = sorted(scores, key=lambda name: -scores[name])[:_OFFERED]
    return [name for name in near if scores[name] >= least]


def names_its_fields(error: type[Exception]) -> Callable[[type[T]], type[T]]:
    """A decorator of dataclasses that users write in their settings. An unknown field raises ``error``, which
    says which one may be meant and which ones exist, instead of a ``TypeError`` that says neither."""

    def decorate(cls: type[T]) -> type[T]:
        made: Any = cls
        made.__init__ = names_its_arguments(error, cls.__name__)(made.__init__)
        return cls

    return decorate


def names_its_arguments(
    error: type[Exception], called: str
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator of functions that users call in their settings. An unknown argument raises ``error``, as in
    :func:`names_its_fields`.

    :param called: the name of the function in the error.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        known = [name for name in inspect.signature(function).parameters if name != "self"]

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            for name in kwargs:
                if name not in known:
                    subject = _with_its_name(called, [kwargs.get("name"), *args])
                    raise error(f"{subject}: {unknown_name('one of its arguments', name, known)}")
            return function(*args, **kwargs)

        return checked

    return decorate


def _with_its_name(called: str, given: Iterable[Any]) -> str:
    """``called``, and the first text of ``given``, which is the name that the user has chosen."""
    name = next((value for value in given if isinstance(value, str)), "")
    return f"{called} {name[:80]!r}" if name else called


def _likeness(given: str, name: str) -> float:
    """From 0 to 1. The last parts are compared separately, because tasks of one module begin alike."""
    lasts = given.rpartition(".")[2], name.rpartition(".")[2]
    return max(SequenceMatcher(None, *pair).ratio() for pair in ((given, name), lasts))


def _listed(names: list[str]) -> str:
    if not names:
        return "none exists."
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"there {'is' if len(names) == 1 else 'are'} {', '.join(names[:_LISTED])}{more}."
