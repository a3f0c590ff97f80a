"""What today's rules say of a failure that only a text tells of: a traceback, or a stored letter."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from celery_dlq.classify.builtin import GENERIC_PROBES, TABLE
from celery_dlq.classify.chain import causes, members
from celery_dlq.classify.evidence import shown_name
from celery_dlq.classify.rules import Classifier, Decision
from celery_dlq.classify.standin import loaded_class, stand_in
from celery_dlq.classify.written import Written

_CARRIED = "the SQLSTATE or HTTP status that it carries"


@dataclass(frozen=True)
class Reading:
    """What would be decided, as far as a text tells."""

    decision: Decision
    #: What rules would have looked at before that decision, and no text tells; as ``Type: what``.
    unknown: tuple[str, ...]


def judge_written(
    written: Written,
    classifier: Classifier,
    noted: Mapping[str, str] = MappingProxyType({}),
    passed: Collection[str] = (),
) -> Reading:
    """What the rules say of ``written``, by type, message and chain.

    Predicates of rules are not called: they expect the real exception.

    :param noted: what the rule that decided noted of an exception when it was real, by its type's name.
    :param passed: names of the types of exceptions that were looked at then, and carried nothing.
    """
    exc = stand_in(written, noted)
    told = replace(classifier, rules=tuple(rule for rule in classifier.rules if rule.when is None))
    return Reading(told.decide(exc), tuple(dict.fromkeys(_unknown(exc, classifier, passed))))


def _unknown(exc: BaseException, classifier: Classifier, passed: Collection[str]) -> Iterator[str]:
    """What no text tells of ``exc`` and those behind it, as far as they are asked."""
    waiting = [exc]
    while waiting:
        exc = waiting.pop(0)
        name = shown_name(type(exc))
        steps = [*_steps(exc, classifier, carried=name not in passed)]
        yield from (f"{name}: {step}" for step in steps if step is not None)
        if None not in steps:
            waiting = [*(members(exc) or causes(exc)), *waiting]


def _steps(exc: BaseException, classifier: Classifier, *, carried: bool) -> Iterator[str | None]:
    """The conditions on ``exc`` that no text tells, in the order in which they are asked; None where
    something decides.

    :param carried: whether it may have carried a code.
    """
    for rule in classifier.rules:
        if rule.covers(type(exc)) is None:
            continue
        if rule.when is None and rule.ask(exc) is not None:
            yield None
            return
        if (carried or rule.when is not None) and rule.unwritten() and rule.may_hold(exc):
            yield f"{rule.unwritten()} ({rule.name}: {rule.verdict.value})"
    yield from _steps_of_table(exc, carried=carried)


def _steps_of_table(exc: BaseException, *, carried: bool) -> Iterator[str | None]:
    entry = TABLE.look_up(type(exc))
    if entry.is_open:
        if any(probe(exc) is not None for probe in GENERIC_PROBES):
            yield None
            return
        # Of a type that is named itself, such as ValueError, an attribute is not to be expected.
        if carried and (entry.is_derived or entry.matches[0].finding is None):
            yield _CARRIED
    for match in entry.matches:
        found = match.row.probe(exc) if match.row.probe is not None else None
        if found is None and match.row.probe is not None and carried:
            yield match.row.depends_on
        if found is not None or match.finding is not None:
            yield None
            return
    if loaded_class(shown_name(type(exc))) is None:
        yield "its base classes, since no module that is loaded here has it"
