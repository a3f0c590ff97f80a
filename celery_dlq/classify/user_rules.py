"""Rules and verdicts that users write. A task raises ``Transient`` or ``Terminal`` to decide about its own
failure. Rules are asked before the built-in ones.

Judging a failure never imports anything; only the check of names does, because an operator named the class.
"""

from __future__ import annotations

import importlib
import logging
import math
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from types import ModuleType

from celery_dlq.classify import rule_arguments
from celery_dlq.classify.evidence import (
    arguments,
    bases,
    dotted_name,
    message,
    read,
    shown_name,
    sqlstate,
    status,
)
from celery_dlq.classify.rule_arguments import ExceptionSpec, Pattern, Predicate
from celery_dlq.classify.table import Finding, Schedule
from celery_dlq.errors import CeleryDLQError, SettingsError
from celery_dlq.model.states import Verdict

#: How many times one of these may wrap another.
_NESTED = 8


class _Said(Exception):
    """A raised verdict. Its first argument is the exception or text that it is about, since pickling
    keeps arguments."""

    # The name under which people import them, and which letters show.
    __module__ = "celery_dlq"

    def __init__(self, about: BaseException | str = "") -> None:
        super().__init__(about)
        if isinstance(about, BaseException):
            self.__cause__: BaseException = about


class Transient(_Said):
    """Raised by a task to say: this will pass, try again.

    It comes before all rules except the task's own ``classify()``. If it wraps an exception, the letter
    is about that exception: it shows its type, message and place, and is grouped by them.

    :param about: the exception that was caught, or a text.
    :param retry_after: the wait before the next attempt, in seconds, or the time of that attempt
        (without a zone: UTC). Such a wait does not use up an attempt. A time in the past means no wait.
        The default is the wait that the wrapped exception carries.
    :raises TypeError: ``retry_after`` has another type.
    :raises ValueError: ``retry_after`` is infinite, or not a number.
    """

    __module__ = "celery_dlq"

    def __init__(
        self,
        about: BaseException | str = "",
        *,
        retry_after: float | timedelta | datetime | None = None,
    ) -> None:
        super().__init__(about)
        self.retry_after: float | timedelta | datetime | None = _wait(retry_after)


class Terminal(_Said):
    """Raised by a task to say: another attempt would fail the same way. The message becomes a letter at once.

    It comes before all rules except the task's own ``classify()``, so ``autoretry_for=(Exception,)`` does not
    retry it.

    :param about: the reason; or the exception that was caught, and that the letter is about.
    """

    __module__ = "celery_dlq"


def said(exc: BaseException) -> Finding | None:
    """The verdict of ``exc`` if it is a raised verdict; otherwise None."""
    # Not isinstance(): a __class__ property may raise.
    if not issubclass(type(exc), _Said):
        return None
    about = subject(exc)
    evidence = "raised by the task"
    if about is not exc:
        evidence = f"{evidence} for {shown_name(type(about))}"
    if issubclass(type(exc), Transient):
        return Finding(Verdict.TRANSIENT, "raised.transient", evidence)
    return Finding(Verdict.TERMINAL, "raised.terminal", evidence)


def subject(exc: BaseException) -> BaseException:
    """The exception that a failure is about: the one that a :class:`Transient` or :class:`Terminal`
    wraps; every other exception is about itself."""
    for _ in range(_NESTED):
        about = arguments(exc)[:1] if issubclass(type(exc), _Said) else ()
        if not about or not issubclass(type(about[0]), BaseException):
            break
        exc = about[0]  # type: ignore[assignment]
    return exc


def _wait(given: object) -> float | timedelta | datetime | None:
    if isinstance(given, timedelta):
        return max(given, timedelta())
    if given is None or isinstance(given, datetime):
        return given
    if not isinstance(given, (int, float)) or isinstance(given, bool):
        raise TypeError(
            f"retry_after={given!r} is not a wait; give seconds, a timedelta or a datetime."
        )
    if not math.isfinite(given):
        raise ValueError(f"retry_after={given!r} is not a wait; give a finite number of seconds.")
    return max(0.0, float(given))


logger: logging.Logger = logging.getLogger(__name__)

#: The end of a name that means all classes of a module.
ALL_BELOW = ".*"


@dataclass(frozen=True, init=False)
class Rule:
    """Says that some exceptions are transient, or that they are terminal.

    :param exceptions: an exception class, its dotted name, or several of them. A name may be the one
        under which the class was defined or any name under which it is imported; ``"package.module.*"``
        means all classes of that module and its submodules; a name without a dot is a builtin. Derived
        classes match as well.
    :param verdict: a :class:`Verdict`, or ``"transient"`` or ``"terminal"``.
    :param name: shown with the verdicts of this rule; by default, a text made from ``exceptions``.
    :param status: an HTTP status, or several; the rule matches only exceptions that carry one of them.
    :param sqlstate: an SQLSTATE, or several; two characters mean a whole class of them. The rule matches only
        exceptions that carry one of them.
    :param matching: a regular expression that is searched in the first 1,024 characters of the message.
        It needs a more specific type than ``Exception``.
    :param when: called with the exception; the rule matches only if it returns a true value. An error in
        it is logged and counts as false.
    :param retry_after: seconds to wait when the exception itself does not say how long.
    :param max_attempts: number of runs, the first included, instead of the task's number.
    :param retry_backoff: upper bound of the first wait, in seconds, instead of the task's.
    :param retry_backoff_max: upper bound of every wait, in seconds, instead of the task's.
    :raises SettingsError: an argument is not valid.
    """

    exceptions: tuple[ExceptionSpec, ...]
    verdict: Verdict
    name: str
    status: frozenset[int]
    sqlstate: frozenset[str]
    matching: re.Pattern[str] | None
    when: Predicate | None
    retry_after: float | None
    #: Its own attempts and waits; None leaves all of them to the task.
    schedule: Schedule | None

    def __init__(
        self,
        exceptions: ExceptionSpec | Iterable[ExceptionSpec],
        verdict: Verdict | str,
        *,
        name: str | None = None,
        status: int | Iterable[int] | None = None,
        sqlstate: str | Iterable[str] | None = None,
        matching: Pattern | None = None,
        when: Predicate | None = None,
        retry_after: float | None = None,
        max_attempts: int | None = None,
        retry_backoff: float | None = None,
        retry_backoff_max: float | None = None,
    ) -> None:
        try:
            specs, parsed = rule_arguments.exceptions(exceptions), rule_arguments.verdict(verdict)
            values = (
                specs,
                parsed,
                name or f"rule({', '.join(map(_spelled, specs))})",
                rule_arguments.statuses(status),
                rule_arguments.sqlstates(sqlstate),
                rule_arguments.pattern(matching, specs),
                rule_arguments.predicate(when),
                rule_arguments.seconds(retry_after, parsed),
                rule_arguments.schedule(parsed, max_attempts, retry_backoff, retry_backoff_max),
            )
        except SettingsError as error:
            raise SettingsError(f"A rule, as in dlq_rules, cannot be made: {error}") from None
        for item, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, item.name, value)

    def condition(self) -> str:
        """The conditions in addition to the type, for people; empty if the type is enough."""
        parts = [self.condition_beyond_text()]
        if self.matching is not None:
            parts.insert(0, f"a message matching {self.matching.pattern!r}")
        return " and ".join(filter(None, parts))

    def condition_beyond_text(self) -> str:
        """The part of :meth:`condition` that cannot be judged by type and message; empty if there is
        no such part."""
        parts = [
            f"{kind} {', '.join(map(str, sorted(codes)))}"
            for kind, codes in (("HTTP status", self.status), ("SQLSTATE", self.sqlstate))
            if codes
        ]
        return " and ".join([*parts, "its predicate"] if self.when is not None else parts)

    def covers(self, cls: type) -> str | None:
        """The name of the class that this rule covers: ``cls`` or one of its bases; None if the rule
        covers neither."""
        for spec in self.exceptions:
            for base in bases(cls):
                if _means(spec, base):
                    return shown_name(base)
        return None

    def ask(self, exc: BaseException) -> Finding | None:
        """The rule's finding about ``exc``; None if the rule does not match."""
        name = self.covers(type(exc))
        if name is None:
            return None
        carried = self._carried(exc)
        if carried is None or (self.when is not None and not self._holds(self.when, exc)):
            return None
        evidence = ", ".join((f"type={name}", *carried))
        return Finding(self.verdict, self.name, evidence, self.retry_after, self.schedule)

    def may_hold(self, exc: BaseException) -> bool:
        """Whether the rule may match ``exc`` when only a part of it is known."""
        code, state = status(exc), _sqlstate(exc)
        return not (
            (self.matching is not None and self.matching.search(message(exc)) is None)
            or (self.status and code is not None and code[0] not in self.status)
            or (self.sqlstate and state is not None and not self._means_state(state[0]))
        )

    def _means_state(self, state: str) -> bool:
        return not self.sqlstate.isdisjoint((state, state[:2]))

    def _carried(self, exc: BaseException) -> list[str] | None:
        """The evidence for the conditions in addition to the type; None if one is not met."""
        seen = []
        if self.status:
            found = status(exc)
            if found is None or found[0] not in self.status:
                return None
            seen.append(f"status={found[0]} from {found[1]}")
        if self.sqlstate:
            state = _sqlstate(exc)
            if state is None or not self._means_state(state[0]):
                return None
            seen.append(f"sqlstate={state[0]} from {state[1]}")
        if self.matching is not None:
            if self.matching.search(message(exc)) is None:
                return None
            seen.append(f"message matches {self.matching.pattern!r}")
        return seen

    def _holds(self, predicate: Predicate, exc: BaseException) -> bool:
        try:
            return bool(predicate(exc))
        except BaseException as error:  # noqa: BLE001 - users' code, on the way to a dead letter
            logger.warning(
                "The predicate of rule %r raised %s and counts as false; correct the rule.",
                self.name,
                shown_name(type(error)),
            )
            return False


def rules_for(
    exceptions: ExceptionSpec | Iterable[ExceptionSpec], verdict: Verdict | str, name: str
) -> tuple[Rule, ...]:
    """One rule for a list of exceptions, such as a task's ``autoretry_for``; none for an empty list.

    :raises SettingsError: the list contains something that is neither a class nor a dotted name.
    """
    if not isinstance(exceptions, Iterable | type):
        raise SettingsError(
            f"{name} = {exceptions!r} is not a list of exceptions or of dotted names."
        )
    listed = exceptions if isinstance(exceptions, (str, type)) else tuple(exceptions)
    if not listed:
        return ()
    try:
        rule_arguments.exceptions(listed)
    except SettingsError as error:
        raise SettingsError(f"{name}: {error}") from None
    return (Rule(listed, verdict, name=name),)


def _sqlstate(exc: BaseException) -> tuple[str, str] | None:
    """The SQLSTATE of ``exc``, or of the driver's error that SQLAlchemy wrapped."""
    found = sqlstate(exc)
    if found is not None:
        return found
    found = sqlstate(read(exc, "orig"))
    return found and (found[0], f"orig.{found[1]}")


def _means(spec: ExceptionSpec, base: type) -> bool:
    if not isinstance(spec, str):
        return base is spec
    name = dotted_name(base)
    if spec.endswith(ALL_BELOW):
        return name.startswith(spec[:-1])
    return name == spec or loaded(spec) is base


def loaded(dotted: str) -> object:
    """The object that a loaded module has under this name, which need not be the name of its definition:
    ``requests.Timeout`` is defined in another module. None if there is no such object.

    Nothing is imported. The module's dictionary is read, because ``__getattr__`` of a module might import.
    """
    module, _, name = dotted.rpartition(".")
    try:
        return object.__getattribute__(sys.modules[module], "__dict__").get(name)
    except (KeyError, AttributeError):
        return None


def _spelled(spec: ExceptionSpec) -> str:
    name = spec if isinstance(spec, str) else dotted_name(spec)
    return name.removeprefix("builtins.")


def find_class(dotted: str) -> type[BaseException]:
    """The exception class of this name; a name without a dot is a builtin. Imports its module.

    :raises CeleryDLQError: the name cannot be imported, or is not an exception class.
    """
    parts = (dotted if "." in dotted else f"builtins.{dotted}").split(".")
    found: object = None
    for end in range(len(parts) - 1, 0, -1) if all(parts) else ():
        module = _import(".".join(parts[:end]))
        if module is not None:
            found = module
            for name in parts[end:]:
                found = getattr(found, name, None)
            break
    if isinstance(found, type) and issubclass(found, BaseException):
        return found
    raise CeleryDLQError(
        f"{dotted!r} is not an exception class that can be imported here; "
        "give its dotted name as in a traceback, such as requests.exceptions.Timeout."
    )


def misnamed(rules: Iterable[Rule]) -> Iterator[str]:
    """The problems of names in ``rules`` that can never match. It imports the named modules, which judging
    never does.

    Classes made at run time cannot be imported by name; name their module, as in ``"module.*"``.
    """
    for rule in rules:
        for spec in rule.exceptions:
            problem = _problem(spec) if isinstance(spec, str) else ""
            if problem:
                # Rules of the short forms already have the name of the setting.
                short = rule.name.startswith(("dlq_", "task."))
                yield f"{rule.name if short else f'dlq_rules, {rule.name}'}: {problem}"


def _problem(spec: str) -> str:
    try:
        if not spec.endswith(ALL_BELOW):
            find_class(spec)
        elif _import(spec.removesuffix(ALL_BELOW)) is None:
            return f"{spec!r} does not name an installed module; correct the name."
    except CeleryDLQError as error:
        return str(error)
    return ""


def _import(name: str) -> ModuleType | None:
    """The module; None if there is no module with this name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            return None
        raise CeleryDLQError(
            f"Importing {name} failed: {error}. Install the missing package."
        ) from error
    except Exception as error:
        raise CeleryDLQError(
            f"Importing {name} failed: {type(error).__name__}: {error}. "
            "Import it in a Python shell to see why."
        ) from error
