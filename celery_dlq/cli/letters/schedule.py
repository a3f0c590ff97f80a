"""The retry schedule of a task, which ``dlq explain TASK`` shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from celery_dlq.cli.screens.parts import Column, Facts, Field, Part, facts_of, table_of
from celery_dlq.cli.session import Session
from celery_dlq.errors import CeleryDLQError
from celery_dlq.view.times import duration
from celery_dlq.worker.uncaptured import dlq_tasks

if TYPE_CHECKING:
    from celery_dlq.retry.outlook import Planned


_ATTEMPT_FIELDS: Sequence[Field] = (
    (Column("ATTEMPT", right=True, rigid=True), lambda attempt: attempt["number"]),
    (Column("WAIT BEFORE", right=True, rigid=True), lambda attempt: _span(attempt, "wait")),
    (
        Column("AFTER THE FIRST FAILURE", right=True, rigid=True),
        lambda attempt: _span(attempt, "start"),
    ),
    (Column("", fold=True), lambda attempt: "; ".join(attempt["notes"])),
)

_RULE_FIELDS: Sequence[Field] = (
    (Column("RULE", fold=True), lambda rule: rule["rule"]),
    (Column("ATTEMPTS", right=True, rigid=True), lambda rule: rule["max_attempts"]),
    (Column("FIRST WAIT", right=True, rigid=True), lambda rule: _seconds(rule["retry_backoff_s"])),
    (
        Column("LONGEST WAIT", right=True, rigid=True),
        lambda rule: _seconds(rule["retry_backoff_max_s"]),
    ),
    (Column("FIXED WAIT", right=True, rigid=True), lambda rule: _seconds(rule["retry_after_s"])),
)


def find_task(session: Session, name: str) -> Any | None:
    """The task on ``DLQTask`` with this name, in full or its last part; None if the app has none.

    :raises CeleryDLQError: several tasks have the name, or the task is on another base class.
    """
    tasks = {task.name: task for task in dlq_tasks(session.cli.app)}
    if name in tasks:
        return tasks[name]
    meant = [known for known in tasks if known.rpartition(".")[2] == name]
    if len(meant) > 1:
        raise CeleryDLQError(
            f"More than one task is named {name}: {', '.join(meant)}; give the full name."
        )
    if not meant and name in session.cli.app.tasks:
        raise CeleryDLQError(
            f"{name} does not use DLQTask, so Celery alone retries it; write @app.task(base=DLQTask)."
        )
    return tasks[meant[0]] if meant else None


def schedule_record(session: Session, task: Any) -> dict[str, Any]:
    """The schedule of a task, for programs."""
    from celery_dlq.retry.outlook import exhausts_all, last_starts, outlook
    from celery_dlq.worker.body.again import policy_of

    found, held = policy_of(task), session.queue.hold.at_most_s
    ends = last_starts(found)
    return {
        "task": task.name,
        "max_attempts": found.max_attempts,
        "retry_backoff_s": found.base,
        "retry_backoff_max_s": found.cap,
        "retry_jitter": found.jitter,
        "fixed_wait_s": found.fixed_delay,
        "retry_window_s": found.window,
        "retry_after_max_s": found.retry_after_max,
        "outage": {
            "exhausts_1_percent_s": ends and _rounded(ends[len(ends) // 100]),
            "exhausts_half_s": ends and _rounded(ends[len(ends) // 2]),
            "exhausts_all_s": _rounded(exhausts_all(found)),
        },
        "breaker_failures": task.dlq_breaker_failures,
        "breaker_window_s": task.dlq_breaker_window,
        "attempts": [_attempt(planned, found.window, held) for planned in outlook(found)],
        "rules": [*_rules(session, task)],
    }


def _attempt(planned: Planned, window: float, held: float) -> dict[str, Any]:
    attempt: dict[str, Any] = {
        "number": planned.number,
        "wait_low_s": _rounded(planned.wait.low),
        "wait_high_s": _rounded(planned.wait.high),
        "start_low_s": _rounded(planned.start.low),
        "start_high_s": _rounded(planned.start.high),
    }
    return {**attempt, "notes": [*_notes(attempt, window, held)]}


def _notes(attempt: dict[str, Any], window: float, held: float) -> Iterator[str]:
    if attempt["start_high_s"] > window:
        yield "skipped if it would start after the retry window"
    if attempt["wait_high_s"] > held:
        certain = "waits in the store" if attempt["wait_low_s"] > held else "may wait in the store"
        yield f"{certain} (parked): the broker holds it for {duration(held)} at most"


def _rules(session: Session, task: Any) -> Iterator[dict[str, Any]]:
    """The rules with a schedule of their own, in the order in which they are applied."""
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


def schedule_parts(record: dict[str, Any]) -> list[Part]:
    """The schedule of :func:`schedule_record`, for people."""
    most, attempts = record["max_attempts"], record["attempts"]
    return [
        _facts(record),
        table_of(_ATTEMPT_FIELDS, attempts),
        _ending(most, len(attempts), record),
        " ".join(_outage(record)),
        table_of(_RULE_FIELDS, record["rules"], "Rules with a schedule of their own"),
    ]


def _facts(record: dict[str, Any]) -> Facts:
    fixed = record["fixed_wait_s"]
    bounds = (
        f"from {_seconds(record['retry_backoff_s'])}, doubling up to "
        f"{_seconds(record['retry_backoff_max_s'])}"
    )
    jitter = "random between 0 and a bound " if record["retry_jitter"] else ""
    return facts_of(
        "Schedule",
        ("Task", record["task"]),
        ("Attempts", record["max_attempts"] or "no limit"),
        ("Wait", f"{_seconds(fixed)} each" if fixed is not None else jitter + bounds),
        ("Retry window", duration(record["retry_window_s"])),
        (
            "Retry-After",
            f"added to the wait, up to {duration(record['retry_after_max_s'])}; does not use an attempt",
        ),
    )


def _ending(most: int | None, listed: int, record: dict[str, Any]) -> str:
    if most == listed:
        return f"If attempt {most} has a transient failure, too, the task becomes a letter, reason exhausted."
    window = duration(record["retry_window_s"])
    return f"And so on, until the retry window of {window} ends or no attempts are left."


def _outage(record: dict[str, Any]) -> Iterator[str]:
    """The effect of an outage on the tasks whose first attempt fails when it begins."""
    few_s, half_s, all_s = (
        record["outage"][f"exhausts_{share}_s"] for share in ("1_percent", "half", "all")
    )
    if record["max_attempts"] == 1:
        yield "The first transient failure exhausts a task, however short the outage."
    elif half_s is None or half_s == all_s:
        yield f"An outage of {duration(all_s)} exhausts all tasks that fail when it begins."
    else:
        yield (
            f"An outage of {duration(few_s)} exhausts 1 % of the tasks that fail when it begins; "
            f"one of {duration(half_s)} half of them; one of {duration(all_s)} all."
        )
    if record["breaker_failures"] and record["max_attempts"] != 1:
        yield (
            f"After {record['breaker_failures']} transient failures within "
            f"{duration(record['breaker_window_s'])} the circuit opens: from then on, its messages wait "
            "in the store, and their attempts start again from 1."
        )
    elif record["max_attempts"] != 1:
        yield "To let its messages wait in the store instead, set dlq_breaker_failures."


def _span(attempt: dict[str, Any], name: str) -> str:
    low, high = attempt[f"{name}_low_s"], attempt[f"{name}_high_s"]
    if attempt["number"] == 1:
        return ""
    return _seconds(high) if low == high else f"{_seconds(low)} to {_seconds(high)}"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{round(seconds, 3):.3g}s" if seconds < 120 else duration(seconds)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
