"""Is an exception transient or terminal? Evidence first, then names; never a substring of a text."""

from celery_dlq.classify.explain import TypeExplanation, explain_type
from celery_dlq.classify.rules import Classifier, Decision, Rule, decide, rules_for

__all__ = [
    "Classifier",
    "Decision",
    "Rule",
    "TypeExplanation",
    "decide",
    "explain_type",
    "rules_for",
]
