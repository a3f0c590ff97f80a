"""Retries as the options of a task describe them: the schedule, the headers of the message, the budget, and
retries that did not take place although the body asked for them.

A retry is refused if the attempts or the budget are used up, or if it cannot be published. Then ``retry()``
raises, and the exception may end the run.

Failures during an outage, that is, while their circuit is open, do not use up an attempt. The process of a
pool that runs a body does not know the circuits. It asks the breakers that it inherited from its parent. The
parent's breakers share with it the names of the circuits that are open, or that one more failure would open.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from celery import signals
from celery.app.task import Context
from celery.exceptions import Ignore, Reject, Retry
from celery.utils.serialization import raise_with_context

from celery_dlq.classify import Decision, is_a
from celery_dlq.model.headers import (
    ATTEMPTS_HEADER,
    DELIVERY_HEADERS,
    FREE_HEADER,
    GROUP_PROPERTY,
    RELEASE_HEADERS,
    free_runs,
)
from celery_dlq.model.states import Reason, Verdict
from celery_dlq.redact import safe_message
from celery_dlq.retry import RetryBudget, RetryPolicy
from celery_dlq.worker.body.ending import Died, Tracer, attempt_of, here, last
from celery_dlq.worker.failure import read_attempts, type_name, write_attempts
from celery_dlq.worker.options import TaskOptions

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


def free_before(request: Context) -> int:
    """The number of earlier runs that used up no attempt."""
    return min(free_runs(request.headers), int(request.retries))


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


def group_of(request: Context) -> dict[str, str]:
    """The option that keeps the retry of ``request`` in its message group on SQS; Celery would drop it."""
    # The headers of a message are attributes of its Context, whatever their names are.
    properties = vars(request).get("properties")
    group = properties.get(GROUP_PROPERTY) if isinstance(properties, Mapping) else None
    return {GROUP_PROPERTY: group} if isinstance(group, str) else {}


def is_outage(task: TaskOptions, request: Context) -> bool:
    """Whether the circuit of ``request`` is open, or would open with this transient failure."""
    if not task.dlq_breaker_failures:
        return False
    args, kwargs = request.args or (), request.kwargs or {}
    return any(breaker.opens_with(task, args, kwargs) for breaker in task._wiring.breakers)


def limit_of_own_retry(
    task: TaskOptions, request: Context, exc: Any, max_retries: int | None
) -> tuple[int | None, int]:
    """The ``max_retries`` for a ``retry()`` that a body calls, and the number of runs so far that used up no
    attempt. Celery counts every run, so this number is added to the limit. A task that may run only once
    still runs only once.

    :param max_retries: the body's own; None for the task's.
    """
    limit = task.max_retries if max_retries is None else max_retries
    if not task.dlq_breaker_failures or not limit or isinstance(cause_of(exc), Retry):
        return max_retries, 0
    free = free_runs(request.headers) + is_outage(task, request)
    return (int(limit) + free if free else max_retries), free


@dataclass(frozen=True)
class Refused:
    """Why ``retry()`` raised instead of sending a message."""

    #: The exception that ``retry()`` raised.
    raised: BaseException
    #: The exception that the message dies of, if ``raised`` ends the run.
    exc: BaseException
    reason: Reason
    why: str = ""


def note_refused(request: Context, refused: Refused) -> None:
    """Remember ``refused`` until the run of ``request`` ends."""
    request._dlq_refused = refused
    if not (request._protected or request.is_eager):
        # By before_start, whose errors do not pass through the task's own call.
        here().refused = refused.raised, refused.reason


def refused_with(request: Context, exc: BaseException, decision: Decision) -> Died | None:
    """The end of a run by ``exc``, if ``retry()`` raised it; ``decision`` is the verdict of the rules."""
    refused = _noted(request)
    if refused is None or refused.raised is not exc:
        return None
    # Over the budget, the body's wish to try again is the verdict; at the last attempt, the rules'.
    verdict = ASKED_FOR if refused.reason is Reason.BUDGET else decision
    return Died(refused.exc, verdict, refused.reason, refused.why)


def refused_rejected(request: Context) -> Died | None:
    """The end of a run by a Reject of Celery's, for a retry that could not be published, or by a retry that
    nothing has sent; None for another Reject."""
    refused = _noted(request)
    if refused is None or refused.reason is not Reason.REJECTED:
        return None
    return Died(refused.exc, ASKED_FOR, refused.reason, refused.why, refused.raised)


def unpublished(rejected: Reject) -> str:
    """Why a retry that Celery turned into ``rejected`` did not take place."""
    cause = rejected.reason
    if not is_a(cause, BaseException):
        return f"the retry could not be published: {safe_message(Exception(cause))}"
    said = ": ".join(filter(None, (type_name(type(cause)), safe_message(cause))))
    return f"the retry could not be published: apply_async() raised {said}"


def _noted(request: Context) -> Refused | None:
    # The headers of a message are attributes of its Context, whatever their names are.
    noted: object = vars(request).pop("_dlq_refused", None)
    return noted if isinstance(noted, Refused) else None


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


def spend_on_own_retry(
    task: TaskOptions, request: Context, exc: Any, max_retries: int | None
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


class _Here(threading.local):
    #: The names of the tasks whose messages this thread has sent; None outside of :func:`must_be_sent`.
    sent: set[str] | None = None


_here = _Here()


@contextmanager
def must_be_sent(task: str) -> Iterator[None]:
    """Check that this thread sends a message of ``task``, a task's name, before the block ends. A task's own
    ``apply_async()`` may keep a message back and return as if it had sent the message. For example,
    celery-singleton does so while the task holds its lock, and during a retry the task still holds it.

    :raises Reject: the task has asked for its retry, and nothing was sent.
    """
    # A task's apply_async() may call send_task() instead of Celery's own apply_async(), so the signal is
    # needed. It is not enough on its own: before 5.7 an app may keep a list of receivers that is no longer
    # the signal's.
    signals.after_task_publish.connect(_hear, weak=False, dispatch_uid=__name__)
    _here.sent = set()
    try:
        yield
        if task not in _here.sent:
            raise Reject("the task's own apply_async() did not send it", requeue=False)
    finally:
        _here.sent = None


def note_sent(task: str) -> None:
    """Note that Celery sends a message of ``task``."""
    if _here.sent is not None:
        _here.sent.add(task)


def _hear(sender: str, headers: Any, body: Any, **_: Any) -> None:
    note_sent(sender)
    run = last()
    # In the protocol of Celery 3, the body has the id.
    fields = body if isinstance(body, Mapping) else headers
    if run and run.unsent and run.unsent.sig.options["task_id"] == fields.get("id"):
        run.unsent = None
