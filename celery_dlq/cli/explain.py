"""Which rule decided, and which rules would decide today."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from celery_dlq.classify.written import Written, parse
from celery_dlq.cli.render import Column, Facts, Part, Table
from celery_dlq.errors import CeleryDLQError
from celery_dlq.letter import DeadLetter, Explanation
from celery_dlq.view.records import attempt_record
from celery_dlq.view.text import first_line

if TYPE_CHECKING:
    from celery_dlq.classify import Classifier, Decision

_OWN = "what the task raises or says itself: Transient, Terminal, classify(), its options"

_ATTEMPT_FIELDS = ("number", "redrive", "verdict", "rule", "evidence", "path")

_ATTEMPT_COLUMNS = (
    Column("#", right=True, rigid=True),
    Column("REDRIVE", right=True, from_width=100),
    Column("VERDICT", rigid=True),
    Column("RULE"),
    Column("EVIDENCE", fold=True),
    Column("PATH", fold=True, from_width=100),
)

#: Characters of a file that are read.
_FILE_LIMIT = 8_388_608

Explained = tuple[dict[str, Any], list[Part]]


def names_type(text: str) -> bool:
    """Whether ``text`` looks like an exception type: a dotted name, or one of the builtins."""
    parts = text.split(".")
    return _is_imported(text) or (len(parts) > 1 and all(part.isidentifier() for part in parts))


def explain_letter(letter: DeadLetter, classifier: Classifier) -> Explained:
    """Why ``letter`` was judged as it was, and what today's rules know of its exception type."""
    record, decision = _decided(letter), [_decided_facts(letter), _attempts(letter)]
    if not _is_imported(letter.exception_type):
        return record, decision
    today, parts = explain_type(letter.exception_type, classifier)
    return {**record, "today": today}, [*decision, *parts]


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


def _attempts(letter: DeadLetter) -> Part:
    rows = [
        (item.number, item.redrive, item.verdict.value, item.rule, item.evidence, item.path)
        for item in letter.attempts
    ]
    return Table(_ATTEMPT_COLUMNS, rows, title="Each attempt")


def read_traceback(name: str) -> Written:
    """The exception that the file ``name`` (``-``: standard input) tells of.

    :raises CeleryDLQError: it cannot be read, or holds no traceback.
    """
    try:
        with click.open_file(name, encoding="utf-8", errors="replace") as file:
            text = file.read(_FILE_LIMIT)
    except OSError as error:
        raise CeleryDLQError(f"{name} cannot be read: {error.strerror or error}.") from error
    written = parse(text)
    if written is None:
        raise CeleryDLQError(
            f"No Python traceback was found in {'standard input' if name == '-' else name}; it begins "
            "with 'Traceback (most recent call last):' and ends with the exception."
        )
    return written


def explain_traceback(written: Written, classifier: Classifier) -> Explained:
    """What today's rules would decide of ``written``, and what no text tells."""
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
        "By today's rules, as far as the text tells",
        [
            ("Exception", written.type_name),
            ("Message", first_line(written.message)),
            ("Verdict", decided.verdict.value + (", unless:" if unknown else "")),
            *(("Not told", item) for item in unknown),
            *_why(decided),
            ("Asked before", _OWN),
        ],
    )
    return record, [facts]


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
            ("Asked before", _OWN),
        ],
    )
    return record, [facts]
