"""The schedule of a task's retries, as its options describe it: how often, how long after a failure, within
which budget.

Failures during an outage, that is, while their circuit is open, do not use up an attempt. The process of a
pool that runs a body does not know the circuits. It asks the valves that it inherited from its parent. The
parent's valves share with it the names of the circuits that are open, or that one more failure would open.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from celery.app.task import Context

from celery_dlq.classify import Decision
from celery_dlq.model.headers import free_runs
from celery_dlq.retry import Exhausted, RetryBudget, RetryPolicy, Wait
from celery_dlq.worker.body.report import Tracer
from celery_dlq.worker.failure import read_attempts
from celery_dlq.worker.options import TaskOptions


def policy_of(task: TaskOptions) -> RetryPolicy:
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


def policy_for(task: TaskOptions, decision: Decision) -> RetryPolicy:
    """The schedule after ``decision``, whose rule may have attempts and waits of its own."""
    policy, own = policy_of(task), decision.schedule
    if own is None:
        return policy
    if own.retry_backoff is not None:
        policy = replace(policy, base=own.retry_backoff, fixed_delay=None)
    if own.retry_backoff_max is not None:
        policy = replace(policy, cap=own.retry_backoff_max)
    return replace(policy, max_attempts=own.max_attempts or policy.max_attempts)


def fixed_delay(task: TaskOptions) -> float | None:
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


def wait_after(
    task: TaskOptions, request: Context, decision: Decision, *, outage: bool
) -> tuple[Wait | Exhausted, int]:
    """The wait after a run of ``request`` that failed, and the number of earlier runs that used up no
    attempt."""
    earlier, now = read_attempts(request.headers), datetime.now(timezone.utc)
    free = min(free_runs(request.headers), int(request.retries))
    policy = policy_for(task, decision)
    # One attempt is a promise that the body runs at most once.
    uncounted = (decision.throttled or outage) and policy.max_attempts != 1
    wait = policy.after(
        request.retries + 1,
        failed_at=now,
        first_failed_at=earlier[0].failed_at if earlier else now,
        retry_after=decision.retry_after,
        uncounted=uncounted,
        free=free,
    )
    return wait, free


def is_outage(task: TaskOptions, request: Context) -> bool:
    """Whether the circuit of ``request`` is open, or would open with this transient failure."""
    if not task.dlq_breaker_failures:
        return False
    args, kwargs = request.args or (), request.kwargs or {}
    return any(valve.opens_with(task, args, kwargs) for valve in task._wiring.valves)


def budget_of(task: TaskOptions) -> RetryBudget | None:
    """The budget that the options of ``task`` ask for, with nothing spent; None for no limit."""
    if task.dlq_retry_budget is None or task._built_in:
        return None
    return RetryBudget(task.dlq_retry_budget, task.dlq_retry_budget_floor)


def counted(tracer: Tracer, budget: RetryBudget | None) -> Tracer:
    """``tracer`` (Celery's, of one task), with each first run counted; ``tracer`` itself without a budget."""
    if budget is None:
        return tracer

    def trace(uuid: str, args: Any, kwargs: Any, request: dict[str, Any] | None = None) -> Any:
        if not (request and request.get("retries")):
            budget.ran()
        return tracer(uuid, args, kwargs, request)

    return trace
