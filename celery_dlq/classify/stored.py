"""What today's rules say of a letter, as far as what is stored of it tells."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from celery_dlq.classify.rejudge import judge_written
from celery_dlq.classify.rules import DEFAULT_RULE, Classifier, Decision
from celery_dlq.classify.written import Written, parse
from celery_dlq.letter import DeadLetter, Explanation

#: Rules that are none of the classifier's: what happened, or the task's own code, decided.
_NO_RULES = (
    "raised.", "message.", "broker.", "task.classify", "task.retry", "task.aborted",
    "task.unstored", "task.cancelled",
)  # fmt: skip

#: The evidence of a rule that went by the type: what it carries was looked at before, in vain.
_BY_TYPE = re.compile(r"type=[^ ,;]*(?:;|\Z)")

#: How a path is written.
_STEP = " <- "


@dataclass(frozen=True)
class Rejudged:
    """A letter, and what has become of its judgement."""

    letter: DeadLetter
    #: The other judgement; None where it is the same, or cannot be told.
    changed: Explanation | None = None
    #: Why it cannot be told.
    untold: str = ""


def rejudge(letter: DeadLetter, classifier: Classifier) -> Rejudged:
    """Judge the last failure of ``letter`` by ``classifier``: by type, message and chain, and the code
    that its evidence has kept.

    A judgement that rests on what was not kept is no other judgement.
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
    """The letter's exception, with its causes where the traceback tells of them."""
    told = parse(letter.traceback)
    if told is None or told.type_name != letter.exception_type:
        return Written(letter.exception_type, letter.message)
    return replace(told, message=letter.message)


def _noting(today: Decision, then: Explanation) -> Explanation:
    before = f"reclassified, before: {then.verdict.value} by {then.rule}"
    return replace(today, evidence=f"{today.evidence}; {before}").explanation()
