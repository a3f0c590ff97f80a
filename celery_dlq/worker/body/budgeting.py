"""A task's retry budget, in the process that runs the task: what is counted, and who has to ask."""

from __future__ import annotations

from typing import Any, Protocol

from celery.app.task import Context
from celery.exceptions import Retry
from celery.utils.serialization import raise_with_context

from celery_dlq.retry import RetryBudget
from celery_dlq.states import Reason
from celery_dlq.worker.body.ending import Refused, Tracer
from celery_dlq.worker.body.retrying import cause_of


class BudgetedTask(Protocol):
    """What bears on a task's retry budget."""

    name: Any
    MaxRetriesExceededError: type[Exception]
    _budget: RetryBudget | None

    @property
    def max_retries(self) -> Any: ...

    @property
    def dlq_retry_budget(self) -> Any: ...

    @property
    def dlq_retry_budget_floor(self) -> Any: ...

    @property
    def _built_in(self) -> bool: ...


def budget_of(task: BudgetedTask) -> RetryBudget | None:
    """The budget that the options of ``task`` ask for, nothing spent; None when there is no limit."""
    if task.dlq_retry_budget is None or task._built_in:
        return None
    return RetryBudget(task.dlq_retry_budget, task.dlq_retry_budget_floor)


def counted(tracer: Tracer, budget: RetryBudget | None) -> Tracer:
    """``tracer`` (Celery's, of one task), with each first run counted; itself where nobody counts."""
    if budget is None:
        return tracer

    def trace(uuid: str, args: Any, kwargs: Any, request: dict[str, Any] | None = None) -> Any:
        if not (request and request.get("retries")):
            budget.ran()
        return tracer(uuid, args, kwargs, request)

    return trace


def spend_on_own_retry(
    task: BudgetedTask, request: Context, exc: Any, max_retries: int | None
) -> None:
    """Ask the budget about a ``retry()`` that a body calls for an error. One without an error is no
    retry: the body looks again later whether something has come.

    :raises BaseException: what Celery's ``retry()`` raises when the attempts are used up: ``exc``, or
        ``MaxRetriesExceededError`` where it was not given.
    """
    limit = task.max_retries if max_retries is None else max_retries
    if task._budget is None or (limit is not None and request.retries >= limit):
        return
    if isinstance(cause_of(exc), Retry):
        return
    over = task._budget.spend()
    if over is not None:
        refusal = f"Can't retry {task.name}[{request.id}]: {over.why}"
        used_up = exc if isinstance(exc, BaseException) else task.MaxRetriesExceededError(refusal)
        request._dlq_refused = Refused(used_up, Reason.BUDGET, over.why)
        raise_with_context(used_up)
