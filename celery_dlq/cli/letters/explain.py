"""``dlq explain``: which rule gave a verdict, and how a task is retried."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from celery_dlq.base.known import unknown_name
from celery_dlq.classify.traceback_parser import Written, parse
from celery_dlq.cli.letters.schedule import find_task, schedule_parts, schedule_record
from celery_dlq.cli.options import format_option
from celery_dlq.cli.screens.parts import Block, Column, Facts, Field, Part, facts_of, table_of
from celery_dlq.cli.session import Session, pass_session
from celery_dlq.errors import CeleryDLQError, LetterDeleted, UnknownGroup, UnknownLetter
from celery_dlq.model.letter import DeadLetter, Explanation
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter, TypeCount
from celery_dlq.view.fields import as_record
from celery_dlq.view.stats import (
    CAUTION,
    change_of,
    redrives_of,
    settings_of,
    unknown_record,
    unknown_types,
)
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

_UNKNOWN: Sequence[Field] = (
    (Column("EXCEPTION"), lambda one: one.exception_type),
    (Column("RULE", rigid=True), lambda one: one.rule),
    (Column("LETTERS", right=True, rigid=True), lambda one: one.letters),
    (Column("OPEN", right=True, rigid=True), lambda one: one.open),
    (Column("LAST", rigid=True, from_width=100), lambda one: one.last_failed_at),
    (Column("REDRIVES"), redrives_of),
    (Column("EVIDENCE OF THE NEWEST", fold=True, from_width=80), lambda one: one.evidence),
)

#: The most characters of a file that are read.
_FILE_LIMIT = 8_388_608

Explained = tuple[dict[str, Any], list[Part]]


@click.command("explain")
@click.argument(
    "what",
    metavar="[ID|GROUP|EXCEPTION|TASK|FILE]",
    required=False,
)
@click.option(
    "--unknown",
    is_flag=True,
    help="List the exception types of stored letters that no rule decides, with settings to paste.",
)
@format_option
@pass_session
def explain(session: Session, what: str | None, unknown: bool, form: str) -> None:
    """Show which rule gave a verdict, and why; or how a task is retried.

    The argument is the ID of a letter; a GROUP, whose newest letter is explained; an EXCEPTION, such as
    ValueError, requests.ConnectionError, or a name that `groups` shows; a TASK, in full or its last part,
    whose retry schedule is shown; or a FILE with a traceback, with - for standard input. The last traceback
    of the file is judged by type, message and chain. The output lists the evidence that a text cannot show.
    """
    if (what is None) is not unknown:
        raise click.UsageError(
            "Give an ID, a GROUP, an EXCEPTION, a TASK or a FILE; or --unknown alone."
        )
    if what is None:
        types = unknown_types(session.store)
        session.screen.emit(form, [*map(unknown_record, types)], *unknown_parts(types))
        return
    record, parts = _explained(session, what)
    is_schedule = form == "csv" and "fixed_wait_s" in record
    session.screen.emit(form, record["attempts"] if is_schedule else record, *parts)


def _explained(session: Session, what: str) -> Explained:
    """The explanation of anything that :func:`explain` takes.

    :raises CeleryDLQError: nothing has this name.
    """
    queue = session.queue
    queue.settings  # noqa: B018 - reading validates them
    if what == "-" or _is_file(what):
        written = read_traceback(what)
        session.load_tasks()  # this imports most of the classes that a traceback names
        return explain_traceback(written, queue.classifier)
    with contextlib.suppress(CeleryDLQError):  # only the task's name needs the worker's code
        session.load_tasks()
    task = find_task(session, what)
    if task is not None:
        record = schedule_record(session, task)
        return record, schedule_parts(record)
    if names_type(what):
        return explain_type(what, queue.classifier)
    return explain_letter(_letter_for(session, what), queue.classifier)


def _letter_for(session: Session, what: str) -> DeadLetter:
    """The letter with this id, or the newest one of this group or with an exception of this name.

    :raises LetterDeleted: the letter with this id was deleted, and the audit says so.
    :raises AmbiguousId: several letters or groups match.
    :raises CeleryDLQError: none matches.
    """
    try:
        return session.letter(what)
    except LetterDeleted:
        raise
    except UnknownLetter:
        wanted = Filter(exception=what, states=frozenset(State))
    with contextlib.suppress(UnknownGroup):
        wanted = Filter(group=session.fingerprint(what), states=frozenset(State))
    for letter in session.store.letters.find(wanted, limit=1).letters:
        return letter
    known = [*session.task_names(), *session.store.counts.names("exception")]
    raise CeleryDLQError(unknown_name("a letter, a group, an exception or a task", what, known))


def unknown_parts(types: Sequence[TypeCount]) -> list[Part]:
    """The exception types about which no rule decided, and the settings that would decide."""
    if not types:
        return ["A rule decided about every stored letter."]
    settings = settings_of(types)
    none_ended = (
        "Name each class of a library in dlq_transient or in dlq_terminal. For a class of Python, such "
        "as Exception, write a Rule with a condition. None of their redrives has ended yet."
    )
    return [
        table_of(_UNKNOWN, types, "No rule decides about these exception types"),
        Block("Settings that would, by the redrives so far", settings),
        CAUTION if settings else none_ended,
    ]


def _is_file(name: str) -> bool:
    # A name that is too long for a file raises.
    with contextlib.suppress(OSError, ValueError):
        return Path(name).is_file()
    return False


def names_type(text: str) -> bool:
    """Whether ``text`` looks like an exception type: a dotted name or a builtin."""
    parts = text.split(".")
    return _is_imported(text) or (len(parts) > 1 and all(part.isidentifier() for part in parts))


def explain_letter(letter: DeadLetter, classifier: Classifier) -> Explained:
    """The recorded verdict of ``letter``, and today's rules for its exception type."""
    record = {
        **as_record(letter, ("task_id", "task", "exception_type")),
        **as_record(letter.explanation),
        "attempts": [as_record(attempt, _ATTEMPT_FIELDS) for attempt in letter.attempts],
    }
    facts = [
        ("Letter", letter.task_id),
        ("Task", letter.task),
        ("Exception", letter.exception_type),
        ("Verdict", letter.verdict.value),
        *_why(letter.explanation),
        ("To change it", change_of(letter.explanation, letter.exception_type)),
    ]
    is_known = _is_imported(letter.exception_type)
    today, of_today = explain_type(letter.exception_type, classifier) if is_known else (None, [])
    attempts = table_of(_ATTEMPTS, letter.attempts, "Each attempt")
    parts = [Facts("Decided when it died", facts), attempts, *of_today]
    return {**record, "today": today}, parts


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
        **as_record(decided, ("verdict", "rule", "evidence", "path")),
        "unknown": unknown,
    }
    facts = facts_of(
        "By today's rules, as far as the text shows",
        ("Exception", written.type_name),
        ("Message", first_line(written.message)),
        ("Verdict", decided.verdict.value + (", unless:" if unknown else "")),
        *(("Unknown", item) for item in unknown),
        *_why(decided),
        ("Applied first", _OWN),
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
    record = as_record(found, ("type_name", "verdict", "rules", "depends_on"))
    facts = facts_of(
        "By today's rules",
        ("Exception", found.type_name),
        ("Verdict", record["verdict"] or "depends"),
        ("Rules", ", ".join(found.rules)),
        ("Depends on", found.depends_on),
        ("Applied first", _OWN),
    )
    return record, [facts]
