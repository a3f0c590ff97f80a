"""The user's own rules, which are asked before the built-in ones."""

from __future__ import annotations

import builtins
import logging
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

from celery_dlq.classify.evidence import bases, dotted_name, shown_name, status
from celery_dlq.classify.table import Finding
from celery_dlq.errors import SettingsError
from celery_dlq.states import Verdict

logger = logging.getLogger(__name__)

#: A class, or the dotted name of one.
ExceptionSpec = type[BaseException] | str

Predicate = Callable[[BaseException], object]

_ALL_BELOW = ".*"


@dataclass(frozen=True, init=False)
class Rule:
    """ "These exceptions are transient", or terminal.

    :param exceptions: an exception class, its dotted name, or several of them. A name may be the one
        under which the class was defined or any one it is imported by; ``"package.module.*"`` means
        all classes of that module and of those below it; a name without a dot is a builtin. Classes
        derived from these are meant as well.
    :param verdict: a :class:`Verdict`, or ``"transient"`` or ``"terminal"``.
    :param name: shown where this rule decided; made of ``exceptions`` by default.
    :param when: called with the exception; the rule holds only if it returns something true. One that
        raises is logged and counts as false.
    :param status: an HTTP status, or several; the rule holds only for exceptions that carry one of them.
    :param retry_after: seconds to wait when the exception itself does not say how long.
    :raises SettingsError: one of the arguments is not as described here.
    """

    exceptions: tuple[ExceptionSpec, ...]
    verdict: Verdict
    name: str
    when: Predicate | None
    status: frozenset[int]
    retry_after: float | None

    def __init__(
        self,
        exceptions: ExceptionSpec | Iterable[ExceptionSpec],
        verdict: Verdict | str,
        *,
        name: str | None = None,
        when: Predicate | None = None,
        status: int | Iterable[int] | None = None,
        retry_after: float | None = None,
    ) -> None:
        meant = _exceptions(exceptions)
        checked = {
            "exceptions": meant,
            "verdict": _verdict(verdict),
            "name": name or f"rule({', '.join(map(_spelled, meant))})",
            "when": _predicate(when),
            "status": _statuses(status),
            "retry_after": _seconds(retry_after),
        }
        for key, value in checked.items():
            object.__setattr__(self, key, value)

    def condition(self) -> str:
        """What has to hold beside the type, for people; empty when the type is enough."""
        codes = ", ".join(map(str, sorted(self.status)))
        parts = [f"HTTP status {codes}"] if codes else []
        return " and ".join([*parts, "its predicate"] if self.when is not None else parts)

    def covers(self, cls: type) -> str | None:
        """The name of the class, ``cls`` or one above it, that this rule is about; None if none is."""
        for spec in self.exceptions:
            for base in bases(cls):
                if _means(spec, base):
                    return shown_name(base)
        return None

    def ask(self, exc: BaseException) -> Finding | None:
        """What the rule says of ``exc``; None when it does not hold."""
        name = self.covers(type(exc))
        if name is None:
            return None
        evidence = f"type={name}"
        if self.status:
            found = status(exc)
            if found is None or found[0] not in self.status:
                return None
            evidence = f"{evidence}, status={found[0]} from {found[1]}"
        if self.when is not None and not self._holds(self.when, exc):
            return None
        return Finding(self.verdict, self.name, evidence, self.retry_after)

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

    :raises SettingsError: the list holds something that is neither a class nor a dotted name.
    """
    listed = exceptions if isinstance(exceptions, (str, type)) else tuple(exceptions)
    return (Rule(listed, verdict, name=name),) if listed else ()


def _means(spec: ExceptionSpec, base: type) -> bool:
    if not isinstance(spec, str):
        return base is spec
    name = dotted_name(base)
    if spec.endswith(_ALL_BELOW):
        return name.startswith(spec[:-1])
    return name == spec or _loaded(spec) is base


def _loaded(dotted: str) -> object:
    """What a loaded module holds under this name: ``requests.Timeout`` is defined elsewhere.

    Never imports: not through ``__getattr__`` of the module either, so its dictionary is read.
    """
    module, _, name = dotted.rpartition(".")
    try:
        return object.__getattribute__(sys.modules[module], "__dict__").get(name)
    except (KeyError, AttributeError):
        return None


def _exceptions(given: object) -> tuple[ExceptionSpec, ...]:
    single = isinstance(given, (str, type)) or not isinstance(given, Iterable)
    listed = (given,) if single else tuple(cast(Iterable[object], given))
    if not listed:
        raise SettingsError("A rule needs at least one exception; name a class or its dotted name.")
    return tuple(_exception(item) for item in listed)


def _exception(item: object) -> ExceptionSpec:
    if isinstance(item, type) and issubclass(item, BaseException):
        return item
    if isinstance(item, str) and "." in item.strip("."):
        return item
    if isinstance(item, str) and isinstance(getattr(builtins, item, None), type):
        return f"builtins.{item}"
    raise SettingsError(
        f"{item!r} is no exception; give a class or a dotted name such as 'requests.Timeout'."
    )


def _spelled(spec: ExceptionSpec) -> str:
    name = spec if isinstance(spec, str) else dotted_name(spec)
    return name.removeprefix("builtins.")


def _verdict(given: Verdict | str) -> Verdict:
    try:
        return Verdict(given)
    except ValueError:
        raise SettingsError(f"{given!r} is no verdict; say 'transient' or 'terminal'.") from None


def _predicate(given: Predicate | None) -> Predicate | None:
    if given is None or callable(given):
        return given
    raise SettingsError(f"when={given!r} cannot be called; give a function of the exception.")


def _statuses(given: int | Iterable[int] | None) -> frozenset[int]:
    if given is None:
        return frozenset()
    codes = frozenset({given} if isinstance(given, int) else given)
    if codes and all(type(code) is int and 300 <= code <= 599 for code in codes):
        return codes
    raise SettingsError(f"status={given!r} is no HTTP error; give numbers from 300 to 599.")


def _seconds(given: float | None) -> float | None:
    if given is None:
        return None
    if isinstance(given, (int, float)) and math.isfinite(given) and given >= 0:
        return float(given)
    raise SettingsError(f"retry_after={given!r} is no number of seconds; give one from 0 upwards.")
