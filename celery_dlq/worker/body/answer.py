"""Answers the exception that ended a run, in this order: judge it, decide on the next step, take that step,
and note the end of the run for the worker's parent."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from celery.app.task import Context
from celery.exceptions import Ignore, Reject, Retry
from celery.utils.log import get_logger

from celery_dlq.classify import Classifier, Decision, Rule, is_a, rules_for
from celery_dlq.errors import SettingsError
from celery_dlq.model.states import Reason, Verdict
from celery_dlq.redact import safe_message
from celery_dlq.retry import Exhausted, Wait
from celery_dlq.worker.body.ending import FINISHED, Died, Retried, ending_of, here, leave_fork
from celery_dlq.worker.body.retrying import (
    ASKED_FOR,
    Judged,
    free_before,
    is_outage,
    policy_for,
    policy_of,
    refused_rejected,
    refused_with,
    successor_of,
    unpublished,
)
from celery_dlq.worker.body.trace import mark_end
from celery_dlq.worker.celery_quirks.brokers import sendable
from celery_dlq.worker.failure import aborted, is_shutdown, read_attempts, type_name
from celery_dlq.worker.options import TaskOptions

logger: logging.Logger = get_logger(__name__)

#: Why a retry that the body raised itself ends its message: only Celery's retry() sends the next one.
_UNSENT = " itself, which sends no message; call self.retry() instead"

#: The options of a task from which its rules are made.
_RULE_OPTIONS = (
    "dont_autoretry_for", "throws", "dlq_terminal", "autoretry_for", "dlq_transient", "dlq_rules",
)  # fmt: skip


def answer(task: TaskOptions, exc: BaseException, request: Context) -> BaseException | None:
    """Retry the run that ``exc`` ended, or let its message die.

    :return: the exception that goes to Celery in place of ``exc``; None for ``exc`` itself.
    """
    try:
        if request.is_eager:
            return _retry_eagerly(task, exc, request)
        leave_fork(exc)
        outcome = _outcome(task, exc, request)
        if isinstance(outcome, Retried) and here().unsent is not None:
            outcome = refused_rejected(request)
        if outcome is None:
            return None
        here().ending = ending = ending_of(outcome, request)
        mark_end(task, request, outcome, ending)
    except Exception as error:
        if error is not exc:
            # The task's own error must reach Celery whatever happens here.
            logger.exception("celery_dlq could not judge the failure of %s", task.name)
        return None
    return None if outcome.instead is exc else outcome.instead


def finish(request: Context) -> None:
    """Called when the body has returned.

    :raises Retry: the body has asked for it, and nothing has sent it.
    """
    if request.is_eager:
        return
    leave_fork()
    run = here()
    if run.unsent is not None:
        raise run.unsent
    run.ending = FINISHED


def _outcome(task: TaskOptions, exc: BaseException, request: Context) -> Died | Retried | None:
    """How the run ended; None if the parent sees that in ``exc`` itself."""
    sent = successor_of(request)
    if is_a(exc, Retry):
        is_sent = exc.sig is not None or sent is not None
        return _asked_for(exc) if is_sent else _aborted(exc, _UNSENT)
    if is_a(exc, (Ignore, Reject)):
        if sent is not None and exc is not sent and getattr(exc, "requeue", True):
            return Retried(ASKED_FOR.rule, for_error=False, instead=sent)
        return refused_rejected(request) if is_a(exc, Reject) else None
    if is_a(exc, MemoryError):
        # The worker's parent re-raises a MemoryError that reaches it, and exits.
        return _aborted(exc)
    if is_a(exc, Exception):
        return None if task._built_in else _judged(task, exc, request)
    if is_shutdown(exc):
        return None
    outcome = _aborted(exc) if task._built_in else _judged(task, exc, request)
    return replace(outcome, instead=outcome.instead or aborted(exc))


def _judged(task: TaskOptions, exc: BaseException, request: Context) -> Died | Retried:
    decision, sent = decide(task, exc), successor_of(request)
    if sent is not None and decision.verdict is Verdict.TRANSIENT:
        logger.warning("%s failed after its retry was sent: %s", request.id, safe_message(exc))
        return Retried(decision.rule, instead=sent)
    refused = refused_with(request, exc, decision)
    step = refused or next_step(task, exc, request, decision)
    return step if isinstance(step, Died) else _send_retry(task, exc, request, step)


def _asked_for(exc: Retry) -> Retried:
    """The end of a run whose body asked for a retry itself."""
    # The error was given to retry(), or was being handled where retry() was called.
    for_error = exc.exc is not None or exc.__context__ is not None
    return Retried(ASKED_FOR.rule, for_error)


def _aborted(exc: BaseException, why: str = "") -> Died:
    evidence = f"the task raised {type_name(type(exc))}{why}"
    decision = Decision(Verdict.TERMINAL, rule="task.aborted", evidence=evidence)
    return Died(exc, decision, Reason.TERMINAL, instead=aborted(exc))


def _send_retry(
    task: TaskOptions, exc: BaseException, request: Context, again: Again
) -> Died | Retried:
    decision = again.decision
    request._dlq_judged = again
    try:
        own = {
            "exc": exc,
            "throw": False,
            "countdown": sendable(task.app, again.delay_s),
            # Celery counts every run; the policy has counted those that use up an attempt.
            "max_retries": request.retries + 1,
        }
        # retry_kwargs may name any option of retry(): a queue, a priority, a limit.
        sent: Retry = task.retry(**{**task.retry_kwargs, **own})
    except Reject as rejected:
        return Died(exc, decision, Reason.REJECTED, unpublished(rejected))
    except Exception:  # noqa: BLE001 - a retry() of the user's, with a lower limit, raises its choice
        return Died(exc, decision, Reason.EXHAUSTED)
    finally:
        # Celery leaves a passed max_retries on the task instance, which all requests share.
        task.__dict__.pop("override_max_retries", None)
    return Retried(decision.rule, instead=sent)


def _retry_eagerly(task: TaskOptions, exc: BaseException, request: Context) -> Retry | None:
    """The retry of an eager call. It behaves as on the plain base class, where only autoretry_for retries."""
    if (
        task._built_in
        or not is_a(exc, Exception)
        or is_a(exc, (Retry, Ignore, Reject, MemoryError))
    ):
        return None
    decision = decide(task, exc)
    if decision.rule != "task.autoretry_for" or refused_with(request, exc, decision) is not None:
        return None
    options = dict(task.retry_kwargs)
    if task.retry_backoff:
        options["countdown"] = policy_of(task).backoff(request.retries + 1)
    again: Retry = task.retry(**{**options, "exc": exc, "throw": False})
    return again


@dataclass(frozen=True)
class Again(Judged):
    """Run again, after a wait."""

    delay_s: float = 0.0


def next_step(
    task: TaskOptions, exc: BaseException, request: Context, decision: Decision
) -> Again | Died:
    """What follows the run of ``request`` that ended in ``exc``."""
    if decision.verdict is Verdict.TERMINAL:
        return Died(exc, decision, Reason.TERMINAL)
    free = free_before(request)
    outage = is_outage(task, request)
    wait = _wait_after(task, request, decision, free, outage=outage)
    if isinstance(wait, Exhausted):
        return Died(exc, decision, Reason.EXHAUSTED, wait.why)
    # While the circuit is open, the retry does not run: it is parked before it reaches the pool.
    over = None if task._budget is None or outage else task._budget.spend()
    if over is not None:
        return Died(exc, decision, Reason.BUDGET, over.why)
    return Again(decision, free + wait.free, wait.delay_s)


def _wait_after(
    task: TaskOptions, request: Context, decision: Decision, free: int, *, outage: bool
) -> Wait | Exhausted:
    earlier, now = read_attempts(request.headers), datetime.now(timezone.utc)
    policy = policy_for(task, decision)
    # One attempt is a promise that the body runs at most once.
    uncounted = (decision.throttled or outage) and policy.max_attempts != 1
    return policy.after(
        request.retries + 1,
        failed_at=now,
        first_failed_at=earlier[0].failed_at if earlier else now,
        retry_after=decision.retry_after,
        uncounted=uncounted,
        free=free,
    )


def decide(task: TaskOptions, exc: BaseException) -> Decision:
    """The verdict on ``exc`` of the task's own ``classify()``; if that gives none, the verdict of the task's
    rules, the app's and the built-in ones."""
    own = _own_judgement(task, exc)
    if own is not None:
        return own
    return classifier_of(task).decide(exc)


def _own_judgement(task: TaskOptions, exc: BaseException) -> Decision | None:
    """The verdict of the task's ``classify()``; None if it leaves that to the rules, or fails."""
    try:
        own = task.classify(exc)
        if own is None or isinstance(own, Decision):
            return own
        return Decision(Verdict(own), rule="task.classify")
    except BaseException as error:
        if is_shutdown(error):
            raise
        # A SystemExit is caught, too, because it would replace the task's own error.
        logger.exception("%s.classify() failed; the rules decide instead", task.name)
        return None


def classifier_of(task: TaskOptions) -> Classifier:
    """The rules of ``task``, then those of its app."""
    apps = task._wiring.classifier
    options = apps, *(getattr(task, name) for name in _RULE_OPTIONS)
    # Made on first use, and again when one of the options has changed.
    if task._classifier_of is None or task._classifier_of[0] != options:
        package = type(task).__module__.partition(".")[0]
        task._classifier_of = options, apps.with_rules(*own_rules(task)).of_package(package)
    return task._classifier_of[1]


def own_rules(task: TaskOptions | type[TaskOptions]) -> tuple[Rule, ...]:
    """The rules that the options of ``task`` make, in the order in which they are asked.

    :raises SettingsError: one of the options holds something that is not an exception, or not a rule.
    """
    given: object = task.dlq_rules
    if not isinstance(given, Sequence) or not all(isinstance(rule, Rule) for rule in given):
        raise SettingsError(f"dlq_rules = {given!r} is not a list of celery_dlq.Rule objects.")
    return (
        *rules_for(task.dont_autoretry_for, Verdict.TERMINAL, "task.dont_autoretry_for"),
        *rules_for(task.dlq_terminal, Verdict.TERMINAL, "task.dlq_terminal"),
        *rules_for(task.autoretry_for, Verdict.TRANSIENT, "task.autoretry_for"),
        *rules_for(task.dlq_transient, Verdict.TRANSIENT, "task.dlq_transient"),
        *task.dlq_rules,
        # The weakest one: Celery retries such an exception if something else asks for it.
        *rules_for(task.throws, Verdict.TERMINAL, "task.throws"),
    )
