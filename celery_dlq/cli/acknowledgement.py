"""The doctor's checks of how tasks are acknowledged: what loses a message, and what repeats it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery_dlq.cli.findings import (
    Finding,
    Findings,
    Level,
    dlq_tasks,
    driver_of,
    hold_limit,
    named,
)
from celery_dlq.cli.session import Session
from celery_dlq.view.times import duration

_CHECK = "acks"


def check(session: Session) -> Findings:
    """Options of tasks, alone and together, that lose a message or run it more than once."""
    app = session.cli.app
    tasks = dlq_tasks(app)
    found = [
        *_those(tasks, lambda task: not task.acks_late, _EARLY),
        *_those(tasks, _fails_into_a_rejection, _rejected_to(app)),
        *_those(tasks, _comes_back_after_its_limit, _bounded(session)),
        *_those(tasks, _is_retried_by_celery, _RETRIED),
        *_runs_too_long(app, tasks),
    ]
    yield from found
    if tasks and not found:
        text = "every task is acknowledged after it ran, and nothing in it repeats without end"
        yield Finding(_CHECK, Level.OK, text)


_EARLY = (
    "acknowledged before it runs, so a worker that is killed loses it, and no letter says so; if it "
    "may safely run twice, set acks_late=True on it, or task_acks_late for all"
)

_RETRIED = (
    "retry_on_worker_lost takes precedence over reject_on_worker_lost: a death is followed by a retry "
    "after default_retry_delay (180 s by default), until max_retries, and dlq_max_deliveries does not "
    "count it; leave it off, or know this"
)


def _fails_into_a_rejection(task: Any) -> bool:
    return bool(task.acks_late and not _acks_on(task, "failure"))


def _comes_back_after_its_limit(task: Any) -> bool:
    return bool(task.acks_late and not _acks_on(task, "timeout"))


def _is_retried_by_celery(task: Any) -> bool:
    return bool(getattr(task, "retry_on_worker_lost", None))


def _acks_on(task: Any, what: str) -> bool:
    own = getattr(task, f"acks_on_{what}", None)  # one option each since Celery 5.7
    return bool(task.acks_on_failure_or_timeout if own is None else own)


def _rejected_to(app: Any) -> str:
    to = {
        "redis": "Redis drops it",
        "amqp": "RabbitMQ passes it on to the queue's dead-letter exchange, if it has one",
    }
    return (
        "acks_on_failure is off, so the message of a failure is rejected: its letter is stored first, "
        f"then {to.get(driver_of(app), 'the broker decides what becomes of it')}; leave it on, unless "
        "you want both"
    )


def _bounded(session: Session) -> str:
    most = session.queue.settings.max_deliveries
    return (
        "acks_on_timeout is off, so a task that the hard time limit kills is delivered again, and runs "
        f"into it dlq_max_deliveries ({most}) times before it is a letter; leave it on, unless it may "
        "be faster elsewhere"
    )


def _runs_too_long(app: Any, tasks: list[Any]) -> Findings:
    limit = hold_limit(app)
    if limit is None:
        return
    seconds, name = limit
    what = "runs a second time beside the first" if driver_of(app) != "amqp" else "ends its worker"
    text = (
        f"acks_late without a hard time limit below {duration(seconds)} ({name}): a run that takes "
        f"longer {what}; set time_limit, or raise that"
    )
    yield from _those(tasks, lambda task: task.acks_late and _may_exceed(task, seconds), text)


def _may_exceed(task: Any, seconds: float) -> bool:
    return task.time_limit is None or task.time_limit >= seconds


def _those(tasks: list[Any], apply: Callable[[Any], Any], text: str) -> Findings:
    """A warning that names the tasks that ``text`` applies to."""
    names = [task.name for task in tasks if apply(task)]
    if names:
        yield Finding(_CHECK, Level.WARNING, f"{named(names)}: {text}")
