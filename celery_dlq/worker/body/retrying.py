"""Retries as the options of a task describe them: the schedule, and the headers of the message."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from celery.app.task import Context
from celery.exceptions import Ignore, Retry

from celery_dlq.classify import Decision, is_a, subject
from celery_dlq.model.headers import (
    ATTEMPTS_HEADER,
    DELIVERY_HEADERS,
    FREE_HEADER,
    RELEASE_HEADERS,
    free_runs,
)
from celery_dlq.model.states import Verdict
from celery_dlq.retry import RetryPolicy
from celery_dlq.worker.body.ending import attempt_of
from celery_dlq.worker.failure import read_attempts, type_name, write_attempts
from celery_dlq.worker.wiring import CapturedTask

#: The verdict on an attempt that ended in an explicit ``retry()``.
ASKED_FOR = Decision(Verdict.TRANSIENT, rule="task.retry")


@dataclass(frozen=True)
class Judged:
    """The verdict for which a retry is sent. A user's class may override ``retry()``, so it does not travel
    as an argument: during the call it is an attribute of the request's Context."""

    decision: Decision
    #: How many runs so far used up no attempt.
    free: int = 0


def successor_of(request: Context) -> Ignore | Retry | None:
    """The exception that is raised for the message that the run of ``request`` has sent in the place of its
    own; None if it has not sent one."""
    # The headers of a message are attributes of its Context, whatever their names are.
    sent: object = vars(request).get("_dlq_successor")
    return sent if isinstance(sent, (Ignore, Retry)) else None


def policy_of(task: CapturedTask) -> RetryPolicy:
    """The schedule that the options of ``task`` ask for."""
    given = task.retry_kwargs.get("max_retries")
    max_retries = task.max_retries if given is None else given
    fixed, base = fixed_delay(task), float(task.retry_backoff or 0.0)
    return RetryPolicy(
        max_attempts=None if max_retries is None else max_retries + 1,
        # For a base below zero, Celery uses one second.
        base=base if base >= 0.0 else 1.0,
        cap=float(task.retry_backoff_max),
        jitter=bool(task.retry_jitter),
        window=float(task.dlq_retry_window),
        retry_after_max=task._wiring.settings.retry_after_max,
        fixed_delay=None if fixed is None else float(fixed),
    )


def policy_for(task: CapturedTask, decision: Decision) -> RetryPolicy:
    """The schedule after ``decision``, whose rule may have attempts and waits of its own."""
    policy, own = policy_of(task), decision.schedule
    if own is None:
        return policy
    if own.retry_backoff is not None:
        policy = replace(policy, base=own.retry_backoff, fixed_delay=None)
    if own.retry_backoff_max is not None:
        policy = replace(policy, cap=own.retry_backoff_max)
    return replace(policy, max_attempts=own.max_attempts or policy.max_attempts)


def free_before(request: Context, exc: BaseException, *, restart: bool) -> int:
    """How many runs before this one used up no attempt.

    :param restart: whether an exception of another type than the last one restarts the schedule.
    """
    if restart and _is_new_error(request, exc):
        return int(request.retries)
    return min(free_runs(request.headers), int(request.retries))


def _is_new_error(request: Context, exc: BaseException) -> bool:
    attempts = read_attempts(request.headers)
    return bool(attempts) and attempts[-1].exception_type != type_name(type(subject(exc)))


def fixed_delay(task: CapturedTask) -> float | None:
    """The constant wait that the task asks for, in seconds, as Celery reads its options; None for
    backoff."""
    countdown: float | None = task.retry_kwargs.get("countdown")
    if task._declares("retry_backoff") and task.retry_backoff:
        return None
    if countdown is not None:
        return countdown
    if task._declares("retry_backoff") or task._declares("default_retry_delay"):
        return float(task.default_retry_delay)
    return None


def cause_of(exc: Any) -> BaseException:
    """The error that an explicit ``retry(exc=exc)`` is called for."""
    return exc if is_a(exc, BaseException) else sys.exc_info()[1] or Retry("retried")


def judged_for(request: Context) -> Judged | None:
    """Take the verdict for which :mod:`celery_dlq.worker.body.answer` retries ``request``; None if the body
    calls ``retry()`` itself."""
    # The headers of a message are attributes of its Context, whatever their names are.
    judged: object = vars(request).pop("_dlq_judged", None)
    return judged if isinstance(judged, Judged) else None


def headers_of_retry(
    request: Context, exc: Any, countdown: Any, options: Mapping[str, Any], judged: Judged
) -> dict[str, Any]:
    """The message headers of a retry: those of the user, and the attempts so far."""
    delay_s = float(countdown) if isinstance(countdown, (int, float)) else None
    attempt = attempt_of(request, cause_of(exc), judged.decision.explanation(), delay_s)
    attempts = (*read_attempts(request.headers), attempt)
    kept = {
        name: value
        for name, value in {**(request.headers or {}), **(options.get("headers") or {})}.items()
        if not name.startswith((*DELIVERY_HEADERS, *RELEASE_HEADERS))
    }
    free = judged.free or free_runs(request.headers)
    return {
        **kept,
        ATTEMPTS_HEADER: write_attempts(attempts),
        **({FREE_HEADER: free} if free else {}),
    }
