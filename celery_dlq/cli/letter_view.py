"""One letter as a person reads it: why it died first, what to do last."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from celery_dlq.cli.raw_body import has_unread_body, shown_body
from celery_dlq.cli.render import Block, Column, Facts, Part, Table
from celery_dlq.cli.text import counted
from celery_dlq.cli.times import duration
from celery_dlq.letter import DeadLetter
from celery_dlq.states import Reason, State

#: Makes a command line of words, for the app at hand.
Command = Callable[..., str]

_REASONS = {
    Reason.TERMINAL: "would fail again the same way",
    Reason.EXHAUSTED: "its attempts or its retry window were used up",
    Reason.TIMEOUT: "the hard time limit killed it",
    Reason.POISON: "its worker process died under it",
    Reason.REJECTED: "it was rejected, or its retry could not be published",
    Reason.UNSTORED: "it ran to its end, but its outcome could not be stored",
    Reason.CANCELLED: "its worker was shut down under it",
    Reason.UNKNOWN_TASK: "the worker knows no task of that name",
    Reason.MALFORMED: "it cannot be decoded, or is no task message",
    Reason.INGESTED: "it came from a dead-letter queue of the broker's",
}

#: What is to be done before the letter is sent back.
_FIRST = {
    Reason.EXHAUSTED: "",
    Reason.UNKNOWN_TASK: "deploy the task, then: ",
    Reason.MALFORMED: "discard it; or, once a worker can read it: ",
}

#: Headers of Celery's messages that say how a task was sent.
_HEADERS = ("eta", "expires", "retries", "timelimit", "origin", "ignore_result", "stamps")

_ATTEMPT_COLUMNS = (
    Column("#", right=True, rigid=True),
    Column("REDRIVE", right=True, from_width=100),
    Column("FAILED", rigid=True),
    Column("EXCEPTION"),
    Column("MESSAGE"),
    Column("VERDICT", rigid=True),
    Column("RULE", from_width=80),
    Column("WORKER", from_width=120),
    Column("THEN WAITED", right=True, rigid=True),
)


def letter_parts(letter: DeadLetter, command: Command) -> list[Part]:
    """The parts of a letter's screen.

    :param command: makes the command lines that are named, such as ``celery -A shop dlq list``.
    """
    parts: list[Part] = [_why(letter), Block("Error", _error(letter))]
    if letter.attempts:
        parts.append(_attempts(letter))
    parts += [*_contents(letter), _message(letter)]
    if letter.traceback:
        parts.append(Block("Traceback", letter.traceback.rstrip()))
    return [*parts, _history(letter), f"Next: {_next_step(letter, command)}"]


def _why(letter: DeadLetter) -> Facts:
    return Facts(
        "Why it died",
        [
            ("Task", letter.task),
            ("Id", letter.task_id),
            ("State", letter.state.value),
            ("Reason", f"{letter.reason.value}: {_REASONS[letter.reason]}"),
            ("Verdict", letter.verdict.value),
            ("Rule", letter.rule),
            ("Evidence", letter.explanation.evidence),
            ("Path", letter.explanation.path),
            ("Failed last", letter.last_failed_at),
        ],
    )


def _error(letter: DeadLetter) -> str:
    return f"{letter.exception_type}: {letter.message}" if letter.message else letter.exception_type


def _attempts(letter: DeadLetter) -> Table:
    rows = [
        (
            attempt.number,
            attempt.redrive,
            attempt.failed_at,
            attempt.exception_type,
            attempt.message,
            attempt.verdict.value,
            attempt.rule,
            attempt.worker,
            "" if attempt.delay_s is None else duration(attempt.delay_s),
        )
        for attempt in letter.attempts
    ]
    return Table(_ATTEMPT_COLUMNS, rows, title="Attempts")


def _contents(letter: DeadLetter) -> list[Part]:
    if has_unread_body(letter):
        return [Block("Body", shown_body(letter.envelope.body))]
    known = letter.args is not None or letter.kwargs is not None
    return [_arguments(letter)] if known else []


def _arguments(letter: DeadLetter) -> Facts:
    return Facts(
        "Arguments", [("args", _as_json(letter.args)), ("kwargs", _as_json(letter.kwargs))]
    )


def _message(letter: DeadLetter) -> Facts:
    envelope = letter.envelope
    known = [(name, envelope.headers.get(name)) for name in _HEADERS]
    return Facts(
        "Message",
        [
            ("Queue", letter.queue),
            ("Exchange", envelope.exchange),
            ("Routing key", envelope.routing_key),
            ("Priority", _as_json(envelope.properties.get("priority"))),
            ("Content", f"{counted(len(envelope.body), 'byte')} of {envelope.content_type}"),
            ("Part of", letter.canvas),
            ("Root", letter.root_id),
            ("Parent", letter.parent_id),
            ("Group", letter.group_id),
            *((name, _as_json(value)) for name, value in known if value not in (None, [], {}, 0)),
        ],
    )


def _history(letter: DeadLetter) -> Facts:
    return Facts(
        "History",
        [
            ("Failed first", letter.first_failed_at),
            ("Redriven", counted(letter.redrive_count, "time")),
            ("Worker", letter.worker),
            ("Release", letter.release),
            ("Tags", ", ".join(letter.tags)),
            ("Group of failures", letter.fingerprint),
            ("Claimed until", letter.lease_expires_at),
            ("Closed", letter.closed_at),
            ("Closed by", letter.closed_by),
            ("Closed because", letter.closed_reason),
        ],
    )


def _next_step(letter: DeadLetter, command: Command) -> str:
    redrive = command("redrive", letter.task_id)
    if letter.state is State.DEAD:
        return f"{_FIRST.get(letter.reason, 'mend the cause, then: ')}{redrive}"
    if letter.state is State.CLAIMED:
        return f"a redrive holds it; look again: {command('show', letter.task_id)}"
    if letter.state is State.REDRIVEN:
        return f"its outcome is awaited; if none comes: {redrive} --state redriven"
    if letter.state is State.DISCARDED:
        return f"to open it again: {command('undiscard', letter.task_id)}"
    return f"nothing, it ran successfully; the others: {command('list')}"


def _as_json(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)
