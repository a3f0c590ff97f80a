"""What the rules say without the exception itself: about a class, or about a failure that is known only as
text, such as a stored letter or a traceback.

For a text, the rules judge a synthetic exception. It has the name of the type, the message, and the
attributes that the evidence of a decision mentions. If the class is loaded, it is the base. Nothing is
imported, because a text must not choose what is imported.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

from celery_dlq.classify.builtin.known import TABLE
from celery_dlq.classify.builtin.known import carried as generic
from celery_dlq.classify.chain import causes, members
from celery_dlq.classify.evidence import bases, shown_name
from celery_dlq.classify.rules import DEFAULT_RULE, Classifier, Decision
from celery_dlq.classify.traceback_parser import Written, parse
from celery_dlq.classify.user_rules import find_class, loaded
from celery_dlq.model.letter import DeadLetter, Explanation
from celery_dlq.model.states import Verdict

CARRIED = "the SQLSTATE or HTTP status that it carries"
_WRAPPED = "the exception that it wraps or was caused by"
_GENERAL = "what else it carries, and its name"


@dataclass(frozen=True)
class TypeExplanation:
    """The rules for exceptions of one type."""

    #: The dotted name under which the class was defined; builtins without their module.
    type_name: str
    #: The ids of the rules, in the order in which they are asked; the last one always decides.
    rules: tuple[str, ...]
    #: The verdict if it is the same for all exceptions of the type, otherwise None.
    verdict: Verdict | None
    #: The evidence that the verdict depends on, in words; empty if there is a verdict.
    depends_on: str


def explain_type(dotted: str, classifier: Classifier | None = None) -> TypeExplanation:
    """The rules that apply to the exception class ``dotted``, such as ``requests.exceptions.Timeout``.

    It imports the module of the class, which the operator has named.

    :raises CeleryDLQError: the name cannot be imported, or is not an exception class.
    """
    cls = find_class(dotted)
    rules: list[str] = []
    conditions: list[str] = []
    verdict = _ask_user(cls, classifier or Classifier(), rules, conditions)
    if verdict is None:
        verdict = _ask_table(cls, rules, conditions)
    return TypeExplanation(
        type_name=shown_name(cls),
        rules=tuple(dict.fromkeys(rules)),
        verdict=None if conditions else verdict,
        depends_on=_sentence(conditions, verdict),
    )


def _ask_user(
    cls: type, classifier: Classifier, rules: list[str], conditions: list[str]
) -> Verdict | None:
    for rule in classifier.rules:
        if rule.covers(cls) is None:
            continue
        rules.append(rule.name)
        condition = rule.condition()
        if not condition:
            return rule.verdict
        conditions.append(f"{condition} ({rule.name}: {rule.verdict.value})")
    return None


def _ask_table(cls: type, rules: list[str], conditions: list[str]) -> Verdict | None:
    """The verdict of the first row that always decides; None if there is no such row."""
    entry = TABLE.look_up(cls)
    for match in entry.matches:
        row = match.row
        rules.append(row.rule)
        if row.depends_on:
            conditions.append(row.depends_on)
        if row.verdict is not None or row.network or row.group:  # it always decides
            return row.verdict
    if entry.is_open:
        conditions.append(CARRIED)
    conditions.append(_WRAPPED)
    if entry.is_open:
        conditions.append(_GENERAL)
    rules.append(DEFAULT_RULE)
    return Verdict.TERMINAL


def _sentence(conditions: list[str], verdict: Verdict | None) -> str:
    if not conditions:
        return ""
    ending = f"; else {verdict.value}" if verdict is not None else ""
    return ", then ".join(dict.fromkeys(conditions)) + ending


#: Rules that are not the classifier's: instead of them, an event or the task's own code decided.
_NO_RULES = (
    "raised.", "message.", "broker.", "task.classify", "task.retry", "task.aborted",
    "task.unstored", "task.cancelled",
)  # fmt: skip

#: The evidence of a rule that decided by type: the exception's attributes were read before, without
#: result.
_BY_TYPE = re.compile(r"type=[^ ,;]*(?:;|\Z)")

#: The format of a path.
_STEP = " <- "

_ERRNO = re.compile(r"\[Errno (\d{1,5})\]")

#: The evidence that rules record, such as ``status=503 from response.status_code``.
_NOTED = re.compile(
    r"\b(?:status|sqlstate|errno)=(\w{1,9}) from ([a-z_]+(?:\.[a-z_]+){0,2})(?![\w.\[])"
)

#: ``Py_TPFLAGS_HEAPTYPE``: the class was made at run time, not by the interpreter.
_MADE_AT_RUN_TIME = 1 << 9


@dataclass(frozen=True)
class Rejudged:
    """A letter, and its new verdict."""

    letter: DeadLetter
    #: The new verdict; None if it is the same, or unknown.
    changed: Explanation | None = None
    #: Why it is unknown.
    untold: str = ""


def rejudge(letter: DeadLetter, classifier: Classifier) -> Rejudged:
    """Judge the last failure of ``letter`` by its type, message and chain, and the code in its
    evidence.

    A verdict that needs evidence that was not stored does not count.
    """
    then = letter.explanation
    if letter.unreadable:
        return Rejudged(letter, untold=letter.unreadable)
    if then.rule.startswith(_NO_RULES):
        return Rejudged(letter, untold=f"no rule of the classifier decided, but {then.rule}")
    *passed, last = then.path.split(_STEP)
    if then.rule == DEFAULT_RULE or _BY_TYPE.match(then.evidence):
        passed.append(last)
    reading = judge_written(_written(letter), classifier, {last: then.evidence}, passed)
    today = reading.decision
    if (today.verdict, today.rule) == (then.verdict, then.rule):
        return Rejudged(letter)
    if reading.unknown:
        return Rejudged(letter, untold=f"not stored: {reading.unknown[0]}")
    before = f"reclassified, before: {then.verdict.value} by {then.rule}"
    noting = replace(today, evidence=f"{today.evidence}; {before}")
    return Rejudged(letter, changed=noting.explanation())


def _written(letter: DeadLetter) -> Written:
    """The letter's exception, with its causes if the traceback shows them."""
    told = parse(letter.traceback)
    if told is None or told.type_name != letter.exception_type:
        return Written(letter.exception_type, letter.message)
    return replace(told, message=letter.message)


@dataclass(frozen=True)
class Reading:
    """The decision, as far as a text allows it."""

    decision: Decision
    #: Evidence that rules would have read before that decision, and that the text does not contain; as
    #: ``Type: what``.
    unknown: tuple[str, ...]


def judge_written(
    written: Written,
    classifier: Classifier,
    noted: Mapping[str, str] = MappingProxyType({}),
    passed: Collection[str] = (),
) -> Reading:
    """The decision about ``written``, by type, message and chain.

    Predicates of rules are not called, because they expect the real exception.

    :param noted: the evidence that the deciding rule recorded from the real exception, by its type's name.
    :param passed: names of the types of exceptions that were read then, and that had no evidence.
    """
    exc = stand_in(written, noted)
    told = replace(classifier, rules=tuple(rule for rule in classifier.rules if rule.when is None))
    return Reading(told.decide(exc), tuple(dict.fromkeys(_unknown(exc, classifier, passed))))


def _unknown(exc: BaseException, classifier: Classifier, passed: Collection[str]) -> Iterator[str]:
    """The evidence that the text does not contain, for ``exc`` and the exceptions behind it that are
    judged."""
    waiting = [exc]
    while waiting:
        exc = waiting.pop(0)
        name = shown_name(type(exc))
        steps = [*_steps(exc, classifier, carried=name not in passed)]
        yield from (f"{name}: {step}" for step in steps if step is not None)
        if None not in steps:
            waiting = [*(members(exc) or causes(exc)), *waiting]


def _steps(exc: BaseException, classifier: Classifier, *, carried: bool) -> Iterator[str | None]:
    """The conditions on ``exc`` that a text cannot show, in the order in which they are asked; None if
    something decides.

    :param carried: whether the exception may have carried a code.
    """
    for rule in classifier.rules:
        if rule.covers(type(exc)) is None:
            continue
        if rule.when is None and rule.ask(exc) is not None:
            yield None
            return
        if (
            (carried or rule.when is not None)
            and rule.condition_beyond_text()
            and rule.may_hold(exc)
        ):
            yield f"{rule.condition_beyond_text()} ({rule.name}: {rule.verdict.value})"
    yield from _steps_of_table(exc, carried=carried)


def _steps_of_table(exc: BaseException, *, carried: bool) -> Iterator[str | None]:
    entry = TABLE.look_up(type(exc))
    if entry.is_open:
        if generic(exc) is not None:
            yield None
            return
        # A type that a row names itself, such as ValueError, is not expected to have such an attribute.
        if carried and (entry.is_derived or entry.matches[0].finding is None):
            yield CARRIED
    for match in entry.matches:
        found = match.row.probe(exc) if match.row.probe is not None else None
        if found is None and match.row.probe is not None and carried:
            yield match.row.depends_on
        if found is not None or match.finding is not None:
            yield None
            return
    if loaded_class(shown_name(type(exc))) is None:
        yield "its base classes, since no module that is loaded here has it"


def stand_in(written: Written, noted: Mapping[str, str]) -> BaseException:
    """An exception with the name, message, causes and members in the text.

    :param noted: evidence that a rule recorded from real exceptions, by the names of their types.
    """
    inner = tuple(stand_in(member, noted) for member in written.members)
    exc = _make(written, inner, noted.get(written.type_name, ""))
    if written.before is not None:
        before = stand_in(written.before, noted)
        exc.__context__ = before
        if written.is_cause:
            exc.__cause__ = before
    return exc


def loaded_class(type_name: str) -> type[BaseException] | None:
    """The exception class with this dotted name, if its module is loaded."""
    found = loaded(type_name if "." in type_name else f"builtins.{type_name}")
    if isinstance(found, type) and issubclass(found, BaseException):
        return found
    return None


def _make(written: Written, members: tuple[BaseException, ...], evidence: str) -> BaseException:
    base, noted = loaded_class(written.type_name) or Exception, _noted(written, evidence)
    try:
        exc = _instance(_subclass(base, written, members, noted), written, members)
    except Exception:  # noqa: BLE001 - a foreign class may refuse to be derived from
        exc = _instance(_subclass(Exception, written, members, noted), written, members)
    # In the class they hide properties of its bases; in the instance they are what it said itself.
    exc.__dict__.update(noted)
    return exc


def _subclass(
    base: type[BaseException],
    written: Written,
    members: tuple[BaseException, ...],
    noted: dict[str, Any],
) -> type[BaseException]:
    module, _, name = written.type_name.rpartition(".")
    attributes: dict[str, Any] = {
        "__module__": module or "builtins",
        "__qualname__": name,
        "__str__": lambda _self: written.message,
        **noted,
    }
    if members:
        attributes["exceptions"] = members
    return cast("type[BaseException]", type(name, (base,), attributes))


def _noted(written: Written, evidence: str) -> dict[str, Any]:
    """The attributes that recorded evidence and the message mention."""
    attributes: dict[str, Any] = {}
    for value, source in _NOTED.findall(evidence):
        name, *inner = source.split(".")
        found: Any = int(value) if value.isdigit() and "sqlstate" not in source else value
        for part in reversed(inner):
            found = SimpleNamespace(**{part: found})
        attributes[name] = found
    errno = _ERRNO.match(written.message)
    return {**({"errno": int(errno[1])} if errno else {}), **attributes}


def _instance(
    cls: type[BaseException], written: Written, members: tuple[BaseException, ...]
) -> BaseException:
    # Not through the class's own __new__ and __init__, whose arguments are unknown.
    maker = next(base for base in bases(cls) if not base.__flags__ & _MADE_AT_RUN_TIME)
    make: Any = maker.__new__
    is_group = maker is getattr(builtins, "BaseExceptionGroup", None)
    arguments = (written.message, list(members)) if is_group else (written.message,)
    exc: BaseException = make(cls, *arguments)
    return exc
