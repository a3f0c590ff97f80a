"""Decides whether an exception is transient or terminal: by evidence first, then by names, never by a
substring of its text.

An exception enters, or the text of one; a decision leaves: a verdict, the rule that decided, the evidence and
a wait. This room may not import a library to recognize its exceptions, do I/O, or raise.
"""

from celery_dlq.classify.evidence import is_a, tells_its_class
from celery_dlq.classify.explain import (
    Reading,
    Rejudged,
    TypeExplanation,
    explain_type,
    judge_written,
    rejudge,
)
from celery_dlq.classify.rule_arguments import ExceptionSpec
from celery_dlq.classify.rules import WITHOUT_A_RULE, Classifier, Decision, decide, is_built_in
from celery_dlq.classify.user_rules import Rule, Terminal, Transient, misnamed, rules_for, subject

__all__ = [
    "WITHOUT_A_RULE", "Classifier", "Decision", "ExceptionSpec", "Reading", "Rejudged", "Rule", "Terminal",
    "Transient", "TypeExplanation", "decide", "explain_type", "is_a", "is_built_in", "judge_written",
    "misnamed", "rejudge", "rules_for", "subject", "tells_its_class",
]  # fmt: skip
