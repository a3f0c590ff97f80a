"""The verdict of today's rules on a letter, as far as its stored data allows it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from celery_dlq.classify.replay.rejudge import judge_written
from celery_dlq.classify.replay.traceback_parser import Written, parse
from celery_dlq.classify.rules import DEFAULT_RULE, Classifier, Decision
from celery_dlq.model.letter import DeadLetter, Explanation

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
    return Rejudged(letter, changed=_noting(today, then))


def _written(letter: DeadLetter) -> Written:
    """The letter's exception, with its causes if the traceback shows them."""
    told = parse(letter.traceback)
    if told is None or told.type_name != letter.exception_type:
        return Written(letter.exception_type, letter.message)
    return replace(told, message=letter.message)


def _noting(today: Decision, then: Explanation) -> Explanation:
    before = f"reclassified, before: {then.verdict.value} by {then.rule}"
    return replace(today, evidence=f"{today.evidence}; {before}").explanation()
