"""What a task's options say about its retries: when, whether the broker can carry it, and with which
history."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from celery.app.task import Context
from celery.exceptions import Retry
from celery.utils.quorum_queues import detect_quorum_queues

from celery_dlq.classify import Decision, subject
from celery_dlq.headers import (
    ATTEMPTS_HEADER,
    DELIVERY_HEADERS,
    FREE_HEADER,
    RELEASE_HEADERS,
    free_runs,
)
from celery_dlq.retry import RetryPolicy
from celery_dlq.states import Verdict
from celery_dlq.worker.body.ending import attempt_of
from celery_dlq.worker.body.failure import read_attempts, type_name, write_attempts
from celery_dlq.worker.wiring import Wiring

#: The judgement of an attempt that ended in an explicit ``retry()``.
ASKED_FOR = Decision(Verdict.TRANSIENT, rule="task.retry")


class RetriedTask(Protocol):
    """The options of a task that say how it is retried, as Celery names them."""

    retry_kwargs: Mapping[str, Any]
    retry_jitter: Any
    default_retry_delay: float
    _wiring: Wiring

    @property
    def max_retries(self) -> Any: ...

    @property
    def retry_backoff(self) -> Any: ...

    @property
    def retry_backoff_max(self) -> Any: ...

    @property
    def dlq_retry_window(self) -> Any: ...

    def _declares(self, option: str) -> bool: ...


def policy_of(task: RetriedTask) -> RetryPolicy:
    """The schedule that the options of ``task`` ask for."""
    most = task.retry_kwargs.get("max_retries")
    most = task.max_retries if most is None else most
    fixed, base = fixed_delay(task), float(task.retry_backoff or 0.0)
    return RetryPolicy(
        max_attempts=None if most is None else most + 1,
        # Below zero Celery takes one second.
        base=base if base >= 0.0 else 1.0,
        cap=float(task.retry_backoff_max),
        jitter=bool(task.retry_jitter),
        window=float(task.dlq_retry_window),
        retry_after_max=task._wiring.settings.retry_after_max,
        fixed_delay=None if fixed is None else float(fixed),
    )


def policy_for(task: RetriedTask, decision: Decision) -> RetryPolicy:
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

    :param restart: whether the schedule begins anew with another type of exception than the last.
    """
    if restart and _is_new_error(request, exc):
        return int(request.retries)
    return min(free_runs(request.headers), int(request.retries))


def _is_new_error(request: Context, exc: BaseException) -> bool:
    attempts = read_attempts(request.headers)
    return bool(attempts) and attempts[-1].exception_type != type_name(type(subject(exc)))


def fixed_delay(task: RetriedTask) -> float | None:
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


def sendable(app: Any, delay_s: Any) -> Any:
    """A wait that the broker can carry. On quorum queues Celery delays in the broker, in whole
    seconds, and refuses (with the message lost) what is above zero and below one."""
    if not isinstance(delay_s, (int, float)) or not 0.0 < delay_s < 1.0:
        return delay_s
    driver = app.connection_for_write().transport.driver_type
    if not detect_quorum_queues(app, driver)[0]:
        return delay_s
    return float(round(delay_s))


def cause_of(exc: Any) -> BaseException:
    """What an explicit ``retry(exc=exc)`` is called for."""
    return exc if isinstance(exc, BaseException) else sys.exc_info()[1] or Retry("retried")


def headers_of_retry(
    request: Context, exc: Any, countdown: Any, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The message headers of a retry: those of the user, and the attempts so far."""
    decision = vars(request).pop("_dlq_decision", None) or ASKED_FOR
    delay_s = float(countdown) if isinstance(countdown, (int, float)) else None
    attempt = attempt_of(request, cause_of(exc), decision.explanation(), delay_s)
    attempts = (*read_attempts(request.headers), attempt)
    kept = {
        name: value
        for name, value in {**(request.headers or {}), **(options.get("headers") or {})}.items()
        if not name.startswith((*DELIVERY_HEADERS, *RELEASE_HEADERS))
    }
    free = vars(request).pop("_dlq_free", None) or free_runs(request.headers)
    return {
        **kept,
        ATTEMPTS_HEADER: write_attempts(attempts),
        **({FREE_HEADER: free} if free else {}),
    }
