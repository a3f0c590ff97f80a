"""Rules that users write. They are asked before the built-in ones.

Judging a failure never imports anything; only the check of names does, because an operator named the class.
"""

from __future__ import annotations

import importlib
import logging
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from types import ModuleType

from celery_dlq.classify import rule_arguments
from celery_dlq.classify.evidence import (
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
        """The name of the class that this rule covers: ``cls`` or one of its bases; None if it covers
        none of them."""
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
            found = _reach(module, parts[end:])
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
        _check(spec)
    except CeleryDLQError as error:
        return str(error)
    return ""


def _check(spec: str) -> None:
    if not spec.endswith(ALL_BELOW):
        find_class(spec)
    elif _import(spec.removesuffix(ALL_BELOW)) is None:
        raise CeleryDLQError(f"{spec!r} does not name an installed module; correct the name.")


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


def _reach(module: ModuleType, names: list[str]) -> object:
    found: object = module
    for name in names:
        found = getattr(found, name, None)
    return found
