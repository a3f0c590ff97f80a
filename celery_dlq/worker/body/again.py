"""Runs a task again: decides on the next step after a verdict, and sends the retry that the verdict or the
body itself asks for.

A retry is refused if the attempts or the budget are used up, or if it cannot be published. Then ``retry()``
raises, and the exception may end the run.

Failures during an outage, that is, while their circuit is open, do not use up an attempt. The process of a
pool that runs a body does not know the circuits. It asks the valves that it inherited from its parent. The
parent's valves share with it the names of the circuits that are open, or that one more failure would open.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, TypeVar

from celery import signals
from celery.app.task import Context
from celery.exceptions import Ignore, Reject, Retry
from celery.utils.serialization import raise_with_context

from celery_dlq.base.redact import safe_message
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
from celery_dlq.retry import Exhausted, RetryBudget, RetryPolicy
from celery_dlq.worker.body.ending import (
    RunEnd,
    attempt_of,
    current_run,
    died,
    last_run,
    retried,
)
from celery_dlq.worker.body.parking import long_wait
from celery_dlq.worker.body.report import Tracer
from celery_dlq.worker.celery_quirks.brokers import sendable
from celery_dlq.worker.failure import read_attempts, type_name, write_attempts
from celery_dlq.worker.options import TaskOptions

_Noted = TypeVar("_Noted")

#: The verdict on an attempt that ended in an explicit ``retry()``.
ASKED_FOR = Decision(Verdict.TRANSIENT, rule="task.retry")


@dataclass(frozen=True)
class Judged:
    """The verdict for which a retry is sent. A user's class may override ``retry()``, so it does not travel
    as an argument: during the call it is an attribute of the request's Context."""

    decision: Decision
    #: How many runs so far used up no attempt.
    free: int = 0
    #: Seconds to wait.
    delay_s: float = 0.0


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


def next_step(
    task: TaskOptions, exc: BaseException, request: Context, decision: Decision
) -> Judged | RunEnd:
    """What follows the run of ``request`` that ended in ``exc``: another one, or the end."""
    if decision.verdict is Verdict.TERMINAL:
        return died(request, exc, decision, Reason.TERMINAL)
    outage = is_outage(task, request)
    earlier, now = read_attempts(request.headers), datetime.now(timezone.utc)
    free, policy = min(free_runs(request.headers), int(request.retries)), policy_for(task, decision)
    wait = policy.after(
        request.retries + 1,
        failed_at=now,
        first_failed_at=earlier[0].failed_at if earlier else now,
        retry_after=decision.retry_after,
        # One attempt is a promise that the body runs at most once.
        uncounted=(decision.throttled or outage) and policy.max_attempts != 1,
        free=free,
    )
    if isinstance(wait, Exhausted):
        return died(request, exc, decision, Reason.EXHAUSTED, wait.why)
    # While the circuit is open, the retry does not run: it is parked before it reaches the pool.
    over = None if task._budget is None or outage else task._budget.spend()
    if over is not None:
        return died(request, exc, decision, Reason.BUDGET, over.why)
    return Judged(decision, free + wait.free, wait.delay_s)


def send(task: TaskOptions, exc: BaseException, request: Context, judged: Judged) -> RunEnd:
    """Send the retry of ``request`` that ``judged`` asks for; the end of its run."""
    decision = judged.decision
    request._dlq_judged = judged
    try:
        own = {
            "exc": exc,
            "throw": False,
            "countdown": sendable(task.app, judged.delay_s),
            # Celery counts every run; the policy has counted those that use up an attempt.
            "max_retries": request.retries + 1,
        }
        # retry_kwargs may name any option of retry(): a queue, a priority, a limit.
        sent: Retry = task.retry(**{**task.retry_kwargs, **own})
    except Reject as rejected:
        return died(request, exc, decision, Reason.REJECTED, unpublished(rejected))
    except Exception:  # noqa: BLE001 - a retry() of the user's, with a lower limit, raises its choice
        return died(request, exc, decision, Reason.EXHAUSTED)
    finally:
        # Celery leaves a passed max_retries on the task instance, which all requests share.
        task.__dict__.pop("override_max_retries", None)
    return retried(decision.rule, instead=sent)


def retry(
    task: TaskOptions,
    celerys: Callable[..., Retry],
    exc: Any,
    eta: Any,
    countdown: Any,
    max_retries: int | None,
    options: dict[str, Any],
    *,
    throw: bool,
) -> Retry:
    """Send the one retry of this run by ``celerys`` (Celery's own ``retry()``).

    :param throw: whether the caller raises the result, which ends the run.
    """
    request, waiting, may_follow = task.request, None, False
    if not request.called_directly and not request.is_eager and not task._built_in:
        # Noted by send(); None if the body calls retry() itself.
        judged = taken(request, "_dlq_judged", Judged)
        # Only a retry that ends the run can travel to the worker's parent with its end.
        ends_the_run = throw or judged is not None
        if judged is None:
            may_follow = True
            max_retries, free = _limit_of_own_retry(task, request, exc, max_retries)
            _spend_on_own_retry(task, request, exc, max_retries)
            judged = Judged(ASKED_FOR, free)
        if not eta and countdown is None and not task._declares("default_retry_delay"):
            countdown = policy_of(task).backoff(request.retries + 1)
        countdown = sendable(task.app, countdown)
        options["headers"] = _headers_of_retry(request, exc, countdown, options, judged)
        options = {**group_of(request), **options}
        waiting = long_wait(task, eta, countdown) if ends_the_run else None
    if waiting is not None:
        eta, countdown, may_follow = None, 0, False
        options |= waiting.options
    call = (exc, False, eta, countdown, max_retries)
    again = _sent(task, celerys, call, options, may_follow=may_follow)
    if waiting is not None:
        waiting.park(again, _cause_of(exc))
    return again


def _sent(
    task: TaskOptions,
    celerys: Callable[..., Retry],
    call: tuple[Any, ...],
    options: Mapping[str, Any],
    *,
    may_follow: bool,
) -> Retry:
    """The exception of a retry that was sent.

    :param may_follow: whether a task's own ``apply_async()`` may send the retry later, before the body
        ends: for example, when a transaction is committed.
    """
    request, again = task.request, None
    by_celery = not task._sends_itself or request.called_directly or request.is_eager
    try:
        with nullcontext() if by_celery else must_be_sent(str(task.name)):
            again = celerys(*call, **options)
    except (Retry, Ignore):
        raise
    except Reject as rejected:
        why = unpublished(rejected)
        note_refused(request, Refused(rejected, _cause_of(call[0]), Reason.REJECTED, why))
        if again is None or not may_follow:
            raise
        current_run().unsent = again
    except Exception as exhausted:
        note_refused(request, Refused(exhausted, exhausted, Reason.EXHAUSTED))
        raise
    return again


def _cause_of(exc: Any) -> BaseException:
    """The error that an explicit ``retry(exc=exc)`` is called for."""
    return exc if is_a(exc, BaseException) else sys.exc_info()[1] or Retry("retried")


def taken(request: Context, name: str, kind: type[_Noted]) -> _Noted | None:
    """Take what this package has noted on ``request`` under ``name``."""
    # The headers of a message are attributes of its Context, whatever their names are.
    noted: object = vars(request).pop(name, None)
    return noted if isinstance(noted, kind) else None


def _headers_of_retry(
    request: Context, exc: Any, countdown: Any, options: Mapping[str, Any], judged: Judged
) -> dict[str, Any]:
    """The message headers of a retry: those of the user, and the attempts so far."""
    delay_s = float(countdown) if isinstance(countdown, (int, float)) else None
    attempt = attempt_of(request, _cause_of(exc), judged.decision.explanation(), delay_s)
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


def _limit_of_own_retry(
    task: TaskOptions, request: Context, exc: Any, max_retries: int | None
) -> tuple[int | None, int]:
    """The ``max_retries`` for a ``retry()`` that a body calls, and the number of runs so far that used up no
    attempt. Celery counts every run, so this number is added to the limit. A task that may run only once
    still runs only once.

    :param max_retries: the body's own; None for the task's.
    """
    limit = task.max_retries if max_retries is None else max_retries
    if not task.dlq_breaker_failures or not limit or isinstance(_cause_of(exc), Retry):
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
        current_run().refused = refused.raised, refused.reason


def refused_with(request: Context, exc: BaseException, decision: Decision) -> RunEnd | None:
    """The end of a run by ``exc``, if ``retry()`` raised it; ``decision`` is the verdict of the rules."""
    refused = taken(request, "_dlq_refused", Refused)
    if refused is None or refused.raised is not exc:
        return None
    # Over the budget, the body's wish to try again is the verdict; at the last attempt, the rules'.
    verdict = ASKED_FOR if refused.reason is Reason.BUDGET else decision
    return died(request, refused.exc, verdict, refused.reason, refused.why)


def refused_rejected(request: Context) -> RunEnd | None:
    """The end of a run by a Reject of Celery's, for a retry that could not be published, or by a retry that
    nothing has sent; None for another Reject."""
    refused = taken(request, "_dlq_refused", Refused)
    if refused is None or refused.reason is not Reason.REJECTED:
        return None
    return died(
        request, refused.exc, ASKED_FOR, refused.reason, refused.why, instead=refused.raised
    )


def unpublished(rejected: Reject) -> str:
    """Why a retry that Celery turned into ``rejected`` did not take place."""
    cause = rejected.reason
    if not is_a(cause, BaseException):
        return f"the retry could not be published: {safe_message(Exception(cause))}"
    said = ": ".join(filter(None, (type_name(type(cause)), safe_message(cause))))
    return f"the retry could not be published: apply_async() raised {said}"


def _spend_on_own_retry(
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
    if is_a(_cause_of(exc), Retry):
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
    run = last_run()
    # In the protocol of Celery 3, the body has the id.
    fields = body if isinstance(body, Mapping) else headers
    if run and run.unsent and run.unsent.sig.options["task_id"] == fields.get("id"):
        run.unsent = None
