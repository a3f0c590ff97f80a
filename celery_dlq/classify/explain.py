"""The decision about a type, without an exception: ``celery dlq explain``."""

from __future__ import annotations

from dataclasses import dataclass

from celery_dlq.classify.builtin.known import TABLE
from celery_dlq.classify.evidence import shown_name
from celery_dlq.classify.rules import DEFAULT_RULE, Classifier
from celery_dlq.classify.user_rules import find_class
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
