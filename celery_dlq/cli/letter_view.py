"""One letter as a person reads it: why it died first, what to do last."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from celery_dlq.cli.render import Block, Column, Facts, Part, Table
from celery_dlq.letter import DeadLetter
from celery_dlq.operation import Sending
from celery_dlq.redrive.canvas import errbacks_of
from celery_dlq.states import State
from celery_dlq.store.base import Change
from celery_dlq.view.raw_body import has_unread_body, shown_body
from celery_dlq.view.reasons import MEANINGS, first_step
from celery_dlq.view.text import counted
from celery_dlq.view.times import duration, iso

#: Makes a command line of words, for the app at hand.
Command = Callable[..., str]

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

_REDRIVE_COLUMNS = (
    Column("#", right=True, rigid=True),
    Column("OPERATION", rigid=True),
    Column("STATE", rigid=True),
    Column("WHY", fold=True),
    Column("SENT", rigid=True),
    Column("ENDED", from_width=80),
)


def letter_parts(
    letter: DeadLetter,
    redrives: Sequence[Sending],
    changes: Sequence[Change],
    command: Command,
) -> list[Part]:
    """The parts of a letter's screen.

    :param command: makes the command lines that are named, such as ``celery -A shop dlq list``.
    """
    parts: list[Part] = [_why(letter), Block("Error", _error(letter))]
    if letter.attempts:
        parts.append(_attempts(letter))
    if redrives:
        parts.append(_redrives(redrives))
    parts += _changed(redrives, changes)
    parts += [*_contents(letter), _message(letter)]
    if letter.traceback:
        parts.append(Block("Traceback", letter.traceback.rstrip()))
    return [*parts, _history(letter), f"Next: {_next_step(letter, command)}"]


def _why(letter: DeadLetter) -> Facts:
    return Facts(
        "Why it waits" if letter.state is State.PARKED else "Why it died",
        [
            ("Task", letter.task),
            ("Id", letter.task_id),
            ("State", letter.state.value),
            ("Reason", f"{letter.reason.value}: {MEANINGS[letter.reason]}"),
            ("Verdict", letter.verdict.value),
            ("Rule", letter.rule),
            ("Evidence", letter.explanation.evidence),
            ("Path", letter.explanation.path),
            ("Failed last", letter.last_failed_at),
            ("Next attempt", letter.due_at),
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


def _redrives(redrives: Sequence[Sending]) -> Table:
    rows = [
        (
            sending.redrive,
            sending.operation,
            sending.state.value,
            sending.why,
            sending.sent_at,
            sending.ended_at,
        )
        for sending in redrives
    ]
    return Table(_REDRIVE_COLUMNS, rows, title="Redrives")


def _changed(redrives: Sequence[Sending], changes: Sequence[Change]) -> Iterator[Block]:
    for change in changes:
        yield Block(f"Changed by {change.who} on {iso(change.at)} ({change.how})", change.diff)
    for sending in redrives:
        if sending.change:
            title = f"Changed in redrive {sending.redrive} only (operation {sending.operation})"
            yield Block(title, sending.change)


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
            ("Ran when it died", ", ".join(errbacks_of(envelope))),
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
        return f"{first_step(letter.reason)}{redrive}"
    if letter.state is State.CLAIMED:
        return f"a redrive holds it; look again: {command('show', letter.task_id)}"
    if letter.state is State.REDRIVEN:
        return f"its outcome is awaited; if none comes: {redrive} --state redriven"
    if letter.state is State.PARKED:
        return f"none, it runs when it is due; to run it now: {command('release', letter.task_id)}"
    if letter.state is State.DISCARDED:
        return f"to open it again: {command('undiscard', letter.task_id)}"
    return f"nothing, it ran successfully; the others: {command('list')}"


def _as_json(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)
