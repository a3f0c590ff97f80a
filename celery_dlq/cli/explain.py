"""Which rule decided, and which rules would decide today."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from celery_dlq.cli.render import Facts, Part
from celery_dlq.letter import DeadLetter

if TYPE_CHECKING:
    from celery_dlq.classify import Classifier

Explained = tuple[dict[str, Any], list[Part]]


def names_type(text: str) -> bool:
    """Whether ``text`` looks like an exception type: a dotted name, or one of the builtins."""
    parts = text.split(".")
    return _is_imported(text) or (len(parts) > 1 and all(part.isidentifier() for part in parts))


def explain_letter(letter: DeadLetter, classifier: Classifier) -> Explained:
    """Why ``letter`` was judged as it was, and what today's rules know of its exception type."""
    decided = letter.explanation
    record = {
        "task_id": letter.task_id,
        "task": letter.task,
        "exception_type": letter.exception_type,
        **vars(decided),
        "verdict": decided.verdict.value,
        "today": None,
    }
    facts = Facts(
        "Decided when it died",
        [
            ("Letter", letter.task_id),
            ("Task", letter.task),
            ("Exception", letter.exception_type),
            ("Verdict", decided.verdict.value),
            ("Rule", decided.rule),
            ("Evidence", decided.evidence),
            ("Path", decided.path),
        ],
    )
    if not _is_imported(letter.exception_type):
        return record, [facts]
    today, parts = explain_type(letter.exception_type, classifier)
    return {**record, "today": today}, [facts, *parts]


def _is_imported(type_name: str) -> bool:
    """Whether the type can be looked up without an import: a letter's content must not choose what
    is imported."""
    module, _, name = type_name.rpartition(".")
    found = getattr(sys.modules.get(module or "builtins"), name, None)
    return isinstance(found, type) and issubclass(found, BaseException)


def explain_type(name: str, classifier: Classifier) -> Explained:
    """What the app's rules and the built-in ones know of an exception type."""
    from celery_dlq.classify import explain_type as look_up

    found = look_up(name, classifier)
    verdict = found.verdict.value if found.verdict else None
    record = {
        "type_name": found.type_name,
        "verdict": verdict,
        "rules": list(found.rules),
        "depends_on": found.depends_on,
    }
    facts = Facts(
        "By today's rules",
        [
            ("Exception", found.type_name),
            ("Verdict", verdict or "depends"),
            ("Rules", ", ".join(found.rules)),
            ("Depends on", found.depends_on),
            (
                "Asked before",
                "the task's own: classify(), dont_autoretry_for, throws, autoretry_for, dlq_rules",
            ),
        ],
    )
    return record, [facts]
