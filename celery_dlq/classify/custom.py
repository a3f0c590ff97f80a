"""The user's own rules, which are asked before the built-in ones."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields

from celery_dlq.classify import checked
from celery_dlq.classify.checked import ExceptionSpec, Pattern, Predicate
from celery_dlq.classify.evidence import (
    bases,
    dotted_name,
    message,
    read,
    shown_name,
    sqlstate,
    status,
)
from celery_dlq.classify.schedule import Schedule
from celery_dlq.classify.table import Finding
from celery_dlq.errors import SettingsError
from celery_dlq.states import Verdict

logger = logging.getLogger(__name__)

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
    :param status: an HTTP status, or several; the rule holds only for exceptions that carry one of them.
    :param sqlstate: an SQLSTATE, or several, or the two characters of a class of them; likewise.
    :param matching: a regular expression that is searched in the first 1,024 characters of the message.
        The exceptions must be of some type: ``Exception`` is none.
    :param when: called with the exception; the rule holds only if it returns something true. One that
        raises is logged and counts as false.
    :param retry_after: seconds to wait when the exception itself does not say how long.
    :param max_attempts: runs in all, the first included, in the place of the task's number.
    :param retry_backoff: upper bound of the first wait, in seconds, in the place of the task's.
    :param retry_backoff_max: upper bound of every wait, in seconds, in the place of the task's.
    :raises SettingsError: one of the arguments is not as described here.
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
            meant, said = checked.exceptions(exceptions), checked.verdict(verdict)
            values = (
                meant,
                said,
                name or f"rule({', '.join(map(_spelled, meant))})",
                checked.statuses(status),
                checked.sqlstates(sqlstate),
                checked.pattern(matching, meant),
                checked.predicate(when),
                checked.seconds(retry_after, said),
                checked.schedule(said, max_attempts, retry_backoff, retry_backoff_max),
            )
        except SettingsError as error:
            raise SettingsError(f"A rule, as in dlq_rules, cannot be made: {error}") from None
        for item, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, item.name, value)

    def condition(self) -> str:
        """What has to hold beside the type, for people; empty when the type is enough."""
        parts = [self.unwritten()]
        if self.matching is not None:
            parts.insert(0, f"a message matching {self.matching.pattern!r}")
        return " and ".join(filter(None, parts))

    def unwritten(self) -> str:
        """The part of :meth:`condition` that neither type nor message tells; empty when there is none."""
        parts = [
            f"{kind} {', '.join(map(str, sorted(codes)))}"
            for kind, codes in (("HTTP status", self.status), ("SQLSTATE", self.sqlstate))
            if codes
        ]
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
        carried = self._carried(exc)
        if carried is None or (self.when is not None and not self._holds(self.when, exc)):
            return None
        evidence = ", ".join((f"type={name}", *carried))
        return Finding(self.verdict, self.name, evidence, self.retry_after, self.schedule)

    def may_hold(self, exc: BaseException) -> bool:
        """Whether nothing that ``exc`` has speaks against the rule, where not all of it is known."""
        code, state = status(exc), _sqlstate(exc)
        return not (
            (self.matching is not None and self.matching.search(message(exc)) is None)
            or (self.status and code is not None and code[0] not in self.status)
            or (self.sqlstate and state is not None and not self._means_state(state[0]))
        )

    def _means_state(self, state: str) -> bool:
        return not self.sqlstate.isdisjoint((state, state[:2]))

    def _carried(self, exc: BaseException) -> list[str] | None:
        """The evidence for what has to hold beside the type; None when something does not."""
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

    :raises SettingsError: the list holds something that is neither a class nor a dotted name.
    """
    if not isinstance(exceptions, Iterable | type):
        raise SettingsError(f"{name} = {exceptions!r} is no list of exceptions or of dotted names.")
    listed = exceptions if isinstance(exceptions, (str, type)) else tuple(exceptions)
    if not listed:
        return ()
    try:
        checked.exceptions(listed)
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
    if spec.endswith(_ALL_BELOW):
        return name.startswith(spec[:-1])
    return name == spec or loaded(spec) is base


def loaded(dotted: str) -> object:
    """What a loaded module holds under this name: ``requests.Timeout`` is defined elsewhere.

    Never imports: not through ``__getattr__`` of the module either, so its dictionary is read.
    """
    module, _, name = dotted.rpartition(".")
    try:
        return object.__getattribute__(sys.modules[module], "__dict__").get(name)
    except (KeyError, AttributeError):
        return None


def _spelled(spec: ExceptionSpec) -> str:
    name = spec if isinstance(spec, str) else dotted_name(spec)
    return name.removeprefix("builtins.")
