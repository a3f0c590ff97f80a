"""A task's retry budget, in the process that runs the task: first runs earn it, retries spend it."""

from __future__ import annotations

from typing import Any

from celery.app.task import Context
from celery.exceptions import Retry
from celery.utils.serialization import raise_with_context

from celery_dlq.classify import is_a
from celery_dlq.model.states import Reason
from celery_dlq.retry import RetryBudget
from celery_dlq.worker.body.refusal import Refused, note_refused
from celery_dlq.worker.body.retrying import cause_of
from celery_dlq.worker.body.tracing import Tracer
from celery_dlq.worker.wiring import CapturedTask


def budget_of(task: CapturedTask) -> RetryBudget | None:
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


def spend_on_own_retry(
    task: CapturedTask, request: Context, exc: Any, max_retries: int | None
) -> None:
    """Spend the budget on a ``retry()`` that a body calls for an error. A call without an error does not
    count as a retry: the body only checks later whether something has arrived.

    :raises BaseException: the exception that Celery's ``retry()`` raises when the attempts are used up:
        ``exc``, or ``MaxRetriesExceededError`` without it.
    """
    limit = task.max_retries if max_retries is None else max_retries
    if task._budget is None or (limit is not None and request.retries >= limit):
        return
    if is_a(cause_of(exc), Retry):
        return
    over = task._budget.spend()
    if over is not None:
        refusal = f"Can't retry {task.name}[{request.id}]: {over.why}"
        used_up = exc if is_a(exc, BaseException) else task.MaxRetriesExceededError(refusal)
        note_refused(request, Refused(used_up, used_up, Reason.BUDGET, over.why))
        raise_with_context(used_up)
