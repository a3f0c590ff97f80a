"""The schedule that a task's settings give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from celery_dlq.cli.findings import dlq_tasks
from celery_dlq.cli.options import format_option
from celery_dlq.cli.render import Column, Facts, Part, Table
from celery_dlq.cli.session import Session
from celery_dlq.errors import CeleryDLQError
from celery_dlq.view.times import duration

if TYPE_CHECKING:
    from celery_dlq.retry.outlook import Planned

_COLUMNS = (
    Column("ATTEMPT", right=True, rigid=True),
    Column("WAIT BEFORE", right=True, rigid=True),
    Column("AFTER THE FIRST FAILURE", right=True, rigid=True),
    Column("", fold=True),
)

_RULE_COLUMNS = (
    Column("RULE", fold=True),
    Column("ATTEMPTS", right=True, rigid=True),
    Column("FIRST WAIT", right=True, rigid=True),
    Column("LONGEST WAIT", right=True, rigid=True),
    Column("FIXED WAIT", right=True, rigid=True),
)


@click.command("policy")
@click.argument("task", metavar="TASK")
@format_option
@click.pass_obj
def policy(cli: Any, task: str, form: str) -> None:
    """Show when a task would be tried again.

    TASK is the task's name, or its last part. Nothing is connected.
    """
    session = Session(cli)
    session.queue.settings  # noqa: B018 - reading validates them
    session.load_tasks()
    found = _find(session, task)
    record = _record(session, found)
    attempts: list[dict[str, Any]] = record["attempts"]
    session.screen.emit(form, attempts if form == "csv" else record, *_parts(record))


def _find(session: Session, name: str) -> Any:
    tasks = {task.name: task for task in dlq_tasks(session.cli.app)}
    if name in tasks:
        return tasks[name]
    meant = [known for known in tasks if known.rpartition(".")[2] == name]
    if len(meant) == 1:
        return tasks[meant[0]]
    if meant:
        raise CeleryDLQError(
            f"More than one task is named {name}: {', '.join(meant)}; give it whole."
        )
    if name in session.cli.app.tasks:
        raise CeleryDLQError(
            f"{name} is not on DLQTask, so Celery alone retries it; write @app.task(base=DLQTask)."
        )
    near = get_close_matches(name, tasks, n=3) or sorted(tasks)[:3]
    more = f"did you mean {' or '.join(near)}?" if near else "it has none on DLQTask."
    raise CeleryDLQError(f"The app has no task {name!r}; {more}")


def _record(session: Session, task: Any) -> dict[str, Any]:
    from celery_dlq.retry.outlook import outlook
    from celery_dlq.worker.body.retrying import policy_of

    found, held = policy_of(task), session.queue.hold.at_most_s
    return {
        "task": task.name,
        "max_attempts": found.max_attempts,
        "retry_backoff_s": found.base,
        "retry_backoff_max_s": found.cap,
        "retry_jitter": found.jitter,
        "fixed_wait_s": found.fixed_delay,
        "retry_window_s": found.window,
        "retry_after_max_s": found.retry_after_max,
        "attempts": [_attempt(planned, found.window, held) for planned in outlook(found)],
        "rules": [*_rules(session, task)],
    }


def _attempt(planned: Planned, window: float, held: float) -> dict[str, Any]:
    attempt: dict[str, Any] = {
        "number": planned.number,
        "wait_low_s": planned.wait.low,
        "wait_high_s": planned.wait.high,
        "start_low_s": planned.start.low,
        "start_high_s": planned.start.high,
    }
    return {**attempt, "notes": [*_notes(attempt, window, held)]}


def _notes(attempt: dict[str, Any], window: float, held: float) -> Iterator[str]:
    if attempt["start_high_s"] > window:
        yield "does not take place when it would start after the retry window"
    if attempt["wait_high_s"] > held:
        certain = "waits in the store" if attempt["wait_low_s"] > held else "may wait in the store"
        yield f"{certain} (parked): the broker holds it for {duration(held)} at most"


def _rules(session: Session, task: Any) -> Iterator[dict[str, Any]]:
    """The rules that have a schedule of their own, in the order in which they are asked."""
    from celery_dlq.worker.body.judge import own_rules

    for rule in (*own_rules(task), *session.queue.classifier.rules):
        own = rule.schedule
        if own is not None or rule.retry_after is not None:
            yield {
                "rule": rule.name,
                "max_attempts": own and own.max_attempts,
                "retry_backoff_s": own and own.retry_backoff,
                "retry_backoff_max_s": own and own.retry_backoff_max,
                "retry_after_s": rule.retry_after,
            }


def _parts(record: dict[str, Any]) -> list[Part]:
    most, attempts = record["max_attempts"], record["attempts"]
    parts: list[Part] = [_facts(record), _table(attempts), _ending(most, len(attempts), record)]
    if record["rules"]:
        rows = [
            (rule["rule"], rule["max_attempts"], *map(_seconds, list(rule.values())[2:]))
            for rule in record["rules"]
        ]
        parts.append(Table(_RULE_COLUMNS, rows, title="Rules with numbers of their own"))
    return parts


def _facts(record: dict[str, Any]) -> Facts:
    fixed = record["fixed_wait_s"]
    bounds = (
        f"from {_seconds(record['retry_backoff_s'])}, doubling up to "
        f"{_seconds(record['retry_backoff_max_s'])}"
    )
    jitter = "drawn evenly between 0 and a bound that goes " if record["retry_jitter"] else ""
    return Facts(
        "Schedule",
        [
            ("Task", record["task"]),
            ("Attempts", record["max_attempts"] or "no limit"),
            ("Wait", f"{_seconds(fixed)} each" if fixed is not None else jitter + bounds),
            ("Retry window", duration(record["retry_window_s"])),
            (
                "Retry-After",
                f"added to the wait, up to {duration(record['retry_after_max_s'])}; uses up no attempt",
            ),
        ],
    )


def _table(attempts: Sequence[dict[str, Any]]) -> Table:
    rows = [
        (
            attempt["number"],
            _span(attempt["wait_low_s"], attempt["wait_high_s"]) if attempt["number"] > 1 else "",
            _span(attempt["start_low_s"], attempt["start_high_s"]) if attempt["number"] > 1 else "",
            "; ".join(attempt["notes"]),
        )
        for attempt in attempts
    ]
    return Table(_COLUMNS, rows)


def _ending(most: int | None, listed: int, record: dict[str, Any]) -> str:
    if most == listed:
        return f"A transient failure of attempt {most} is a letter, reason exhausted."
    window = duration(record["retry_window_s"])
    return f"And so on, until the retry window of {window} or the attempts are used up."


def _span(low: float, high: float) -> str:
    return _seconds(high) if low == high else f"{_seconds(low)} to {_seconds(high)}"


def _seconds(seconds: float | None) -> str:
    return (
        "" if seconds is None else f"{round(seconds, 3):g}s" if seconds < 120 else duration(seconds)
    )
