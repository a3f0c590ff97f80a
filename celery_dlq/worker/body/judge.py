"""What a body raised is judged here: another attempt, or the end, with its reason remembered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, Protocol

from celery.app.task import Context
from celery.exceptions import Ignore, Reject, Retry
from celery.utils.log import get_logger

from celery_dlq.classify import Classifier, Decision, ExceptionSpec, Rule, rules_for
from celery_dlq.errors import SettingsError, TaskAborted
from celery_dlq.redact import safe_message
from celery_dlq.retry import Exhausted, RetryBudget, Wait
from celery_dlq.states import Reason, Verdict
from celery_dlq.worker.body.ending import Died, Ended, Refused, aborted, died, here, is_shutdown
from celery_dlq.worker.body.failure import read_attempts, type_name
from celery_dlq.worker.body.retrying import (
    ASKED_FOR,
    RetriedTask,
    free_before,
    policy_for,
    policy_of,
    sendable,
)

logger = get_logger(__name__)

#: The options of a task that its rules are made of.
_RULE_OPTIONS = (
    "dont_autoretry_for", "throws", "dlq_terminal", "autoretry_for", "dlq_transient", "dlq_rules",
)  # fmt: skip


class RuledTask(Protocol):
    """The options of a task that its rules are made of."""

    throws: Sequence[type[BaseException]]
    autoretry_for: Sequence[type[BaseException]]
    dont_autoretry_for: Sequence[type[BaseException]]
    dlq_terminal: Sequence[ExceptionSpec]
    dlq_transient: Sequence[ExceptionSpec]
    dlq_rules: Sequence[Rule]


class JudgedTask(RetriedTask, RuledTask, Protocol):
    """What the judge asks of a task, and of its owner's choices."""

    app: Any
    name: Any
    #: Its classifier, and the options that it was made of.
    _classifier_of: tuple[tuple[object, ...], Classifier] | None
    #: None where retries have no limit but the policy's.
    _budget: RetryBudget | None

    @property
    def _built_in(self) -> bool: ...

    def classify(self, exc: BaseException) -> Decision | Verdict | str | None: ...

    def retry(self, **options: Any) -> Any: ...


def answer(task: JudgedTask, exc: BaseException, request: Context) -> Exception | None:
    """What goes to Celery instead of ``exc``, which the body raised, if anything does."""
    if isinstance(exc, (Retry, Ignore, Reject)):
        if not request.is_eager:
            here.ending = _chosen_end(exc, request)
        return None
    if isinstance(exc, MemoryError):
        # The worker's parent re-raises a MemoryError that reaches it, and exits.
        return None if request.is_eager else _abort(exc, request)
    if isinstance(exc, Exception):
        return _judge(task, exc, request)
    if request.is_eager or is_shutdown(exc):
        return None
    return _abort(exc, request)


def decide(task: JudgedTask, exc: BaseException) -> Decision:
    """The verdict on ``exc``: by the task's own ``classify``, else by its rules, the app's, and the
    built-in ones."""
    own = _own_judgement(task, exc)
    if own is not None:
        return own
    return classifier_of(task).decide(exc)


def _own_judgement(task: JudgedTask, exc: BaseException) -> Decision | None:
    """What the task's ``classify()`` says; None when that leaves it to the rules, or fails to say it."""
    try:
        own = task.classify(exc)
        if own is None or isinstance(own, Decision):
            return own
        return Decision(Verdict(own), rule="task.classify")
    except BaseException as error:
        if is_shutdown(error):
            raise
        # A SystemExit, too: it would take the place of the task's own error.
        logger.exception("%s.classify() failed; the rules decide instead", task.name)
        return None


def _chosen_end(exc: Retry | Ignore | Reject, request: Context) -> Ended | Died | None:
    """The end that the body chose itself; None when that says it all."""
    if isinstance(exc, Retry):
        # The error was given to retry(), or is being handled where it is called.
        for_error = exc.exc is not None or exc.__context__ is not None
        here.rule = ASKED_FOR.rule
        return Ended.RETRIED if for_error else Ended.POSTPONED
    # The Reject may be Celery's, for a retry() of the body's that could not be published.
    return vars(request).get("_dlq_unsent") if isinstance(exc, Reject) else None


def unsent(request: Context, exc: BaseException, decision: Decision, rejected: Reject) -> Died:
    """The end by a retry for ``exc`` that could not be published, which Celery turns into ``rejected``."""
    why = f"the retry could not be published: {safe_message(rejected)}"
    return died(request, exc, decision, Reason.REJECTED, why)


def _judge(task: JudgedTask, exc: Exception, request: Context) -> Retry | None:
    """The retry that answers ``exc``, already sent; or None, with the reason of death remembered."""
    if task._built_in:
        return None
    try:
        decision = decide(task, exc)
        if request.is_eager:
            return _retry_eagerly(task, exc, request, decision)
        end = _retry_or_die(task, exc, request, decision)
    except Exception as error:
        if error is exc:
            return None
        # The task's own error must reach Celery whatever happens here.
        logger.exception("celery_dlq could not judge the failure of %s", task.name)
        return None
    if isinstance(end, Died):
        here.ending = end
        return None
    here.ending, here.rule = Ended.RETRIED, decision.rule
    return end


def _retry_or_die(
    task: JudgedTask, exc: Exception, request: Context, decision: Decision
) -> Retry | Died:
    refused: Refused | None = vars(request).pop("_dlq_refused", None)
    if refused is not None and refused.exc is exc:
        return _die_refused(request, refused, decision)
    if decision.verdict is Verdict.TERMINAL:
        return died(request, exc, decision, Reason.TERMINAL)
    free = free_before(request, exc, restart=task._wiring.settings.restart_on_new_error)
    step = _step_after(task, request, decision, free)
    if isinstance(step, Exhausted):
        return died(request, exc, decision, Reason.EXHAUSTED, step.why)
    over = None if task._budget is None else task._budget.spend()
    if over is not None:
        return died(request, exc, decision, Reason.BUDGET, over.why)
    request._dlq_free = free + step.free
    return _send_retry(task, exc, request, decision, step)


def _step_after(
    task: JudgedTask, request: Context, decision: Decision, free: int
) -> Wait | Exhausted:
    earlier, now = read_attempts(request.headers), datetime.now(timezone.utc)
    return policy_for(task, decision).after(
        request.retries + 1,
        failed_at=now,
        first_failed_at=earlier[0].failed_at if earlier else now,
        retry_after=decision.retry_after,
        throttled=decision.throttled,
        free=free,
    )


def _die_refused(request: Context, refused: Refused, decision: Decision) -> Died:
    # Over the budget, the body's wish to try again is the verdict; at the last attempt, the rules'.
    verdict = ASKED_FOR if refused.reason is Reason.BUDGET else decision
    return died(request, refused.exc, verdict, refused.reason, refused.why)


def _send_retry(
    task: JudgedTask, exc: Exception, request: Context, decision: Decision, step: Wait
) -> Retry | Died:
    request._dlq_decision = decision
    try:
        own = {
            "exc": exc,
            "throw": False,
            "countdown": sendable(task.app, step.delay_s),
            # Celery counts every run; the policy has counted those that use up an attempt.
            "max_retries": request.retries + 1,
        }
        # retry_kwargs may name any option of retry(): a queue, a priority, a limit.
        again: Retry = task.retry(**{**task.retry_kwargs, **own})
    except Reject as rejected:
        return unsent(request, exc, decision, rejected)
    except Exception:  # noqa: BLE001 - a retry() of the user's, with a lower limit, raises its choice
        return died(request, exc, decision, Reason.EXHAUSTED)
    finally:
        # Celery leaves a passed max_retries on the task instance, which all requests share.
        task.__dict__.pop("override_max_retries", None)
    return again


def _retry_eagerly(
    task: JudgedTask, exc: Exception, request: Context, decision: Decision
) -> Retry | None:
    # An eager call behaves as on the plain base class, where only autoretry_for retries.
    refused: Refused | None = vars(request).get("_dlq_refused")
    exhausted = refused is not None and refused.exc is exc
    if exhausted or decision.rule != "task.autoretry_for":
        return None
    options = dict(task.retry_kwargs)
    if task.retry_backoff:
        options["countdown"] = policy_of(task).backoff(request.retries + 1)
    again: Retry = task.retry(**{**options, "exc": exc, "throw": False})
    return again


def _abort(exc: BaseException, request: Context) -> TaskAborted:
    name = type_name(type(exc))
    decision = Decision(Verdict.TERMINAL, rule="task.aborted", evidence=f"the task raised {name}")
    here.ending = died(request, exc, decision, Reason.TERMINAL)
    return aborted(exc)


def classifier_of(task: JudgedTask) -> Classifier:
    """The rules of ``task``, then those of its app."""
    apps = task._wiring.classifier
    options = apps, *(getattr(task, name) for name in _RULE_OPTIONS)
    # Made once, and again when somebody has set one of the options anew.
    if task._classifier_of is None or task._classifier_of[0] != options:
        task._classifier_of = options, apps.with_rules(*own_rules(task))
    return task._classifier_of[1]


def own_rules(task: RuledTask | type[RuledTask]) -> tuple[Rule, ...]:
    """The rules that the options of ``task`` make, in the order in which they are asked.

    :raises SettingsError: one of the options holds what is no exception, or no rule.
    """
    given: object = task.dlq_rules
    if not isinstance(given, Sequence) or not all(isinstance(rule, Rule) for rule in given):
        raise SettingsError(f"dlq_rules = {given!r} is no list of celery_dlq.Rule objects.")
    return (
        *rules_for(task.dont_autoretry_for, Verdict.TERMINAL, "task.dont_autoretry_for"),
        *rules_for(task.throws, Verdict.TERMINAL, "task.throws"),
        *rules_for(task.dlq_terminal, Verdict.TERMINAL, "task.dlq_terminal"),
        *rules_for(task.autoretry_for, Verdict.TRANSIENT, "task.autoretry_for"),
        *rules_for(task.dlq_transient, Verdict.TRANSIENT, "task.dlq_transient"),
        *task.dlq_rules,
    )
