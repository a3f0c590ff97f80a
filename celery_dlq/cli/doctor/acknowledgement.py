"""The doctor's check of acknowledgement: task options that lose a message or run it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery_dlq.cli.doctor.finding import (
    Finding,
    Findings,
    Level,
    driver_of,
    hold_limit,
    named,
)
from celery_dlq.cli.session import Session
from celery_dlq.view.times import duration
from celery_dlq.worker.uncaptured import dlq_tasks


def check(session: Session) -> Findings:
    """Task options that lose a message or run it more than once, alone or in combination."""
    app = session.cli.app
    tasks = dlq_tasks(app)
    found = [
        *_those(tasks, lambda task: not task.acks_late, *_early(session)),
        *_those(tasks, _fails_into_a_rejection, _rejected_to(app)),
        *_those(tasks, _comes_back_after_its_limit, _repeated_up_to(session)),
        *_those(tasks, _is_retried_by_celery, _RETRIED),
        *_runs_too_long(app, tasks),
    ]
    yield from found
    if tasks and not found:
        text = "every task is acknowledged after it runs, and none repeats without end"
        yield Finding(Level.OK, text)


def _early(session: Session) -> tuple[str, Level]:
    step = "if it may safely run twice, set acks_late=True on it, or task_acks_late for all tasks"
    if not session.queue.settings.recorder:
        then = "so a killed worker loses it without a letter"
        return f"acknowledged before it runs, {then}; {step}", Level.WARNING
    then = "so if its worker is killed, the flight recorder makes it a letter, and it does not run again"
    return f"acknowledged before it runs, {then}; {step}", Level.OK


_RETRIED = (
    "retry_on_worker_lost takes precedence over reject_on_worker_lost: when its worker process dies, the "
    "task is retried after default_retry_delay (180 s by default), up to max_retries, and "
    "dlq_max_deliveries does not count the death; turn it off, unless you want this"
)


def _fails_into_a_rejection(task: Any) -> bool:
    return bool(task.acks_late and not _acks_on(task, "failure"))


def _comes_back_after_its_limit(task: Any) -> bool:
    return bool(task.acks_late and not _acks_on(task, "timeout"))


def _is_retried_by_celery(task: Any) -> bool:
    return bool(getattr(task, "retry_on_worker_lost", None))


def _acks_on(task: Any, end: str) -> bool:
    own = getattr(task, f"acks_on_{end}", None)  # Celery 5.7 has one option for each
    return bool(task.acks_on_failure_or_timeout if own is None else own)


def _rejected_to(app: Any) -> str:
    to = {
        "redis": "Redis drops it",
        "amqp": "RabbitMQ passes it on to the queue's dead-letter exchange, if it has one",
    }
    return (
        "acks_on_failure is off, so the message of a failure is rejected: its letter is stored first, "
        f"then {to.get(driver_of(app), 'the broker decides what to do with it')}; turn it on, unless you "
        "want both"
    )


def _repeated_up_to(session: Session) -> str:
    most = session.queue.settings.max_deliveries
    return (
        "acks_on_timeout is off, so a task that the hard time limit kills is delivered again, up to "
        f"dlq_max_deliveries ({most}) times before it becomes a letter; turn it on, unless the task may "
        "be faster on another worker"
    )


def _runs_too_long(app: Any, tasks: list[Any]) -> Findings:
    limit = hold_limit(app)
    if limit is None:
        return
    seconds, name = limit
    what = "is started again while it continues" if driver_of(app) != "amqp" else "ends its worker"
    text = (
        f"acks_late without a hard time limit below {duration(seconds)} ({name}): a run that takes "
        f"longer {what}; set time_limit, or raise the broker's limit"
    )
    default_s = app.conf.task_time_limit
    yield from _those(
        tasks, lambda task: task.acks_late and _may_exceed(task, default_s, seconds), text
    )


def _may_exceed(task: Any, default_s: float | None, seconds: float) -> bool:
    # Before Celery 5.7, a task without a limit of its own does not show that of its app.
    limit_s = default_s if task.time_limit is None else task.time_limit
    return limit_s is None or limit_s >= seconds


def _those(
    tasks: list[Any], apply: Callable[[Any], Any], text: str, level: Level = Level.WARNING
) -> Findings:
    """A finding that lists the tasks to which ``text`` applies."""
    names = [task.name for task in tasks if apply(task)]
    if names:
        yield Finding(level, f"{named(names)}: {text}")
