"""Explain a verdict: the rule that gave it, and the rules that would give one today."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from celery_dlq.classify.traceback_parser import Written, parse
from celery_dlq.cli.screens.render import Column, Facts, Field, Part, table_of
from celery_dlq.errors import CeleryDLQError
from celery_dlq.model.letter import DeadLetter, Explanation
from celery_dlq.view.records import attempt_record
from celery_dlq.view.text import first_line

if TYPE_CHECKING:
    from celery_dlq.classify import Classifier, Decision

_OWN = "the task's own Transient, Terminal, classify() and options"

_ATTEMPT_FIELDS = ("number", "redrive", "verdict", "rule", "evidence", "path")

_ATTEMPTS: Sequence[Field] = (
    (Column("#", right=True, rigid=True), lambda attempt: attempt.number),
    (Column("REDRIVE", right=True, from_width=100), lambda attempt: attempt.redrive),
    (Column("VERDICT", rigid=True), lambda attempt: attempt.verdict.value),
    (Column("RULE"), lambda attempt: attempt.rule),
    (Column("EVIDENCE", fold=True), lambda attempt: attempt.evidence),
    (Column("PATH", fold=True, from_width=100), lambda attempt: attempt.path),
)

#: The most characters of a file that are read.
_FILE_LIMIT = 8_388_608

Explained = tuple[dict[str, Any], list[Part]]


def names_type(text: str) -> bool:
    """Whether ``text`` looks like an exception type: a dotted name or a builtin."""
    parts = text.split(".")
    return _is_imported(text) or (len(parts) > 1 and all(part.isidentifier() for part in parts))


def explain_letter(letter: DeadLetter, classifier: Classifier) -> Explained:
    """The recorded verdict of ``letter``, and today's rules for its exception type."""
    attempts = table_of(_ATTEMPTS, letter.attempts, "Each attempt")
    record, parts = _decided(letter), [_decided_facts(letter), attempts]
    if not _is_imported(letter.exception_type):
        return record, parts
    today, parts_of_today = explain_type(letter.exception_type, classifier)
    return {**record, "today": today}, [*parts, *parts_of_today]


def _decided(letter: DeadLetter) -> dict[str, Any]:
    return {
        "task_id": letter.task_id,
        "task": letter.task,
        "exception_type": letter.exception_type,
        **vars(letter.explanation),
        "verdict": letter.verdict.value,
        "attempts": [
            {name: record[name] for name in _ATTEMPT_FIELDS}
            for record in map(attempt_record, letter.attempts)
        ],
        "today": None,
    }


def _decided_facts(letter: DeadLetter) -> Part:
    return Facts(
        "Decided when it died",
        [
            ("Letter", letter.task_id),
            ("Task", letter.task),
            ("Exception", letter.exception_type),
            ("Verdict", letter.verdict.value),
            *_why(letter.explanation),
        ],
    )


def _why(decided: Explanation | Decision) -> list[tuple[str, str]]:
    return [("Rule", decided.rule), ("Evidence", decided.evidence), ("Path", decided.path)]


def read_traceback(name: str) -> Written:
    """The exception in the file ``name`` (``-``: standard input).

    :raises CeleryDLQError: the file cannot be read, or has no traceback.
    """
    try:
        with click.open_file(name, encoding="utf-8", errors="replace") as file:
            text = file.read(_FILE_LIMIT)
    except OSError as error:
        raise CeleryDLQError(f"{name} cannot be read: {error.strerror or error}.") from error
    written = parse(text)
    if written is None:
        raise CeleryDLQError(
            f"{'Standard input' if name == '-' else name} has no Python traceback; one starts with "
            "'Traceback (most recent call last):' and ends with the exception."
        )
    return written


def explain_traceback(written: Written, classifier: Classifier) -> Explained:
    """The verdict of today's rules on ``written``, and the evidence that a text cannot show."""
    from celery_dlq.classify import judge_written

    reading = judge_written(written, classifier)
    decided, unknown = reading.decision, list(reading.unknown)
    record = {
        "exception_type": written.type_name,
        "message": written.message,
        "verdict": decided.verdict.value,
        "rule": decided.rule,
        "evidence": decided.evidence,
        "path": decided.path,
        "unknown": unknown,
    }
    facts = Facts(
        "By today's rules, as far as the text shows",
        [
            ("Exception", written.type_name),
            ("Message", first_line(written.message)),
            ("Verdict", decided.verdict.value + (", unless:" if unknown else "")),
            *(("Unknown", item) for item in unknown),
            *_why(decided),
            ("Applied first", _OWN),
        ],
    )
    return record, [facts]


def _is_imported(type_name: str) -> bool:
    """Whether the type can be found without an import. The content of a letter must not decide which
    modules are imported."""
    module, _, name = type_name.rpartition(".")
    found = getattr(sys.modules.get(module or "builtins"), name, None)
    return isinstance(found, type) and issubclass(found, BaseException)


def explain_type(name: str, classifier: Classifier) -> Explained:
    """The app's rules and the built-in rules for an exception type."""
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
            ("Applied first", _OWN),
        ],
    )
    return record, [facts]
