"""Checks each argument of a rule, and converts it to the form in which it is used."""

from __future__ import annotations

import builtins
import math
import re
from collections.abc import Callable, Iterable
from typing import cast

from celery_dlq.classify.table import Schedule
from celery_dlq.errors import SettingsError
from celery_dlq.model.states import Verdict

#: A class, or the dotted name of one.
ExceptionSpec = type[BaseException] | str

Predicate = Callable[[BaseException], object]

Pattern = str | re.Pattern[str]

#: Types that are too general for a rule about text: any message may contain a word by chance.
_ANY = frozenset({Exception, BaseException, "builtins.Exception", "builtins.BaseException"})

_SQLSTATE = re.compile(r"[0-9A-Z]{2}([0-9A-Z]{3})?\Z")

_MOST_ATTEMPTS, _LONGEST_BACKOFF = 10_000, 86_400.0


def exceptions(given: object) -> tuple[ExceptionSpec, ...]:
    """Classes and dotted names, at least one."""
    single = isinstance(given, (str, type)) or not isinstance(given, Iterable)
    listed = (given,) if single else tuple(cast(Iterable[object], given))
    if not listed:
        raise SettingsError("A rule needs at least one exception; name a class or its dotted name.")
    return tuple(_exception(item) for item in listed)


def _exception(item: object) -> ExceptionSpec:
    if isinstance(item, type) and issubclass(item, BaseException):
        return item
    if isinstance(item, str) and _is_dotted(item):
        return item
    found = getattr(builtins, item, None) if isinstance(item, str) else None
    if isinstance(found, type) and issubclass(found, BaseException):
        return f"builtins.{item}"
    raise SettingsError(
        f"{item!r} is not an exception; give a class or a dotted name such as 'requests.Timeout'."
    )


def _is_dotted(name: str) -> bool:
    parts = name.removesuffix(".*").split(".")
    whole = len(parts) > 1 or name.endswith(".*")
    return whole and all(part.isidentifier() or part == "<locals>" for part in parts)


def verdict(given: Verdict | str) -> Verdict:
    """A verdict, or its name."""
    try:
        return Verdict(given)
    except ValueError:
        raise SettingsError(
            f"{given!r} is not a verdict; give 'transient' or 'terminal'."
        ) from None


def predicate(given: Predicate | None) -> Predicate | None:
    """A callable that takes an exception."""
    if given is None or callable(given):
        return given
    raise SettingsError(f"when={given!r} cannot be called; give a function of the exception.")


def statuses(given: int | Iterable[int] | None) -> frozenset[int]:
    """HTTP statuses of errors."""
    codes = _listed(given, int)
    if all(type(code) is int and 300 <= code <= 599 for code in codes):
        return cast("frozenset[int]", codes)
    raise SettingsError(f"status={given!r} is not an HTTP error; give numbers from 300 to 599.")


def sqlstates(given: str | Iterable[str] | None) -> frozenset[str]:
    """SQLSTATEs, or their first two characters, which are their class."""
    codes = _listed(given, str)
    if all(isinstance(code, str) and _SQLSTATE.match(code) for code in codes):
        return cast("frozenset[str]", codes)
    raise SettingsError(
        f"sqlstate={given!r} is not an SQLSTATE; give five characters such as '40001', or two for a class."
    )


def _listed(given: object, kind: type) -> frozenset[object]:
    """The codes that a user gives as one or as a list; an empty list has the code None."""
    if given is None:
        return frozenset()
    is_list = isinstance(given, Iterable) and not isinstance(given, kind)
    return frozenset(cast("Iterable[object]", given) if is_list else [given]) or frozenset([None])


def pattern(given: Pattern | None, specs: Iterable[ExceptionSpec]) -> re.Pattern[str] | None:
    """A regular expression, only for exceptions of specific types."""
    if given is None:
        return None
    if not _ANY.isdisjoint(specs):
        raise SettingsError(
            f"matching={given!r} needs a type: every message may contain it by chance; "
            "name the exceptions whose message it is."
        )
    if not isinstance(given, str) and not isinstance(getattr(given, "pattern", None), str):
        raise SettingsError(
            f"matching={given!r} is not a pattern; give a regular expression as a str."
        )
    try:
        return re.compile(given)
    except (re.error, RecursionError, OverflowError) as error:
        raise SettingsError(
            f"matching={given!r} is not a regular expression: {error}; correct it, or use re.escape()."
        ) from None


def seconds(given: float | None, of: Verdict) -> float | None:
    """A wait; only a transient rule may have one."""
    if given is None:
        return None
    if of is Verdict.TERMINAL:
        raise SettingsError(f"retry_after={given!r} in a terminal rule; nothing is retried there.")
    return _number("retry_after", given, math.inf)


def schedule(
    of: Verdict, max_attempts: int | None, backoff: float | None, backoff_max: float | None
) -> Schedule | None:
    """A rule's own attempts and waits, which only a transient rule may have; None if it sets none."""
    given = {
        "max_attempts": max_attempts, "retry_backoff": backoff, "retry_backoff_max": backoff_max,
    }  # fmt: skip
    named = [f"{name}={value!r}" for name, value in given.items() if value is not None]
    if not named:
        return None
    if of is Verdict.TERMINAL:
        raise SettingsError(f"{', '.join(named)} in a terminal rule; nothing is retried there.")
    base, cap = (
        _number(name, given[name], _LONGEST_BACKOFF)
        for name in ("retry_backoff", "retry_backoff_max")
    )
    if base is not None and cap is not None and base > cap:
        raise SettingsError(
            f"retry_backoff={base:g} is above retry_backoff_max={cap:g}; raise the maximum or lower it."
        )
    return Schedule(_attempts(max_attempts), base, cap)


def _attempts(given: int | None) -> int | None:
    if given is None or (type(given) is int and 1 <= given <= _MOST_ATTEMPTS):
        return given
    raise SettingsError(
        f"max_attempts={given!r} is not a number of runs; give one from 1 to {_MOST_ATTEMPTS}."
    )


def _number(name: str, given: float | None, most: float) -> float | None:
    if given is None:
        return None
    is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if is_number and math.isfinite(given) and 0 <= given <= most:
        return float(given)
    upwards = "upwards" if most == math.inf else f"to {most:g}"
    raise SettingsError(f"{name}={given!r} is not a number of seconds; give one from 0 {upwards}.")
