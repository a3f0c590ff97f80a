"""Is an exception transient or terminal? Evidence first, then names; never a substring of a text."""

from celery_dlq.classify.checked import ExceptionSpec
from celery_dlq.classify.explain import TypeExplanation, explain_type
from celery_dlq.classify.names import misnamed
from celery_dlq.classify.raised import Terminal, Transient, subject
from celery_dlq.classify.rejudge import Reading, judge_written
from celery_dlq.classify.rules import Classifier, Decision, Rule, decide, rules_for
from celery_dlq.classify.stored import Rejudged, rejudge

__all__ = [
    "Classifier",
    "Decision",
    "ExceptionSpec",
    "Reading",
    "Rejudged",
    "Rule",
    "Terminal",
    "Transient",
    "TypeExplanation",
    "decide",
    "explain_type",
    "judge_written",
    "misnamed",
    "rejudge",
    "rules_for",
    "subject",
]
