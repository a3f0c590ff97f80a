"""The verdict of today's rules on a failure that is known only as text: a traceback, or a stored
letter."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from celery_dlq.classify.builtin import GENERIC_PROBES, TABLE
from celery_dlq.classify.chain import causes, members
from celery_dlq.classify.evidence import shown_name
from celery_dlq.classify.replay.explain import CARRIED
from celery_dlq.classify.replay.synthetic import loaded_class, stand_in
from celery_dlq.classify.replay.traceback_parser import Written
from celery_dlq.classify.rules import Classifier, Decision


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
        if any(probe(exc) is not None for probe in GENERIC_PROBES):
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
