"""Marks runs for OpenTelemetry and Sentry, if the program has imported them: those of redriven messages when
they begin, and each run that fails when its end is decided. An error of theirs changes nothing."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

from billiard.exceptions import SoftTimeLimitExceeded
from celery.app.task import Context
from celery.exceptions import Retry
from celery.utils.log import get_logger

from celery_dlq.model.fingerprint import within
from celery_dlq.model.headers import fingerprint_of
from celery_dlq.model.states import Verdict
from celery_dlq.worker.body.again import successor_of
from celery_dlq.worker.body.ending import RunEnd
from celery_dlq.worker.body.run import Run
from celery_dlq.worker.options import TaskOptions

if TYPE_CHECKING:
    from opentelemetry.trace import Span

logger: logging.Logger = get_logger(__name__)

P = ParamSpec("P")

#: Attributes of a span, or tags, without the prefix of their names. Those without a value are left out.
Marks = Mapping[str, Any]


def _guarded(mark: Callable[P, None]) -> Callable[P, None]:
    """``mark``, which raises nothing but a time limit."""

    @wraps(mark)
    def marked(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            mark(*args, **kwargs)
        except SoftTimeLimitExceeded:
            raise
        except Exception:
            logger.debug("OpenTelemetry or Sentry failed", exc_info=True)

    return marked


@_guarded
def mark_redriven(task: TaskOptions, request: Context) -> None:
    """Name the letter, the group and the redrive of a redriven message before its body runs."""
    span, scope = _span(), _scope()
    if span is None and scope is None:
        return
    run = Run.of(str(task.name), request)
    group = fingerprint_of(request.headers)
    marks = {"letter": run.letter, "group": group, "redrive": run.redrive}
    _tag(scope, marks)
    if span is not None:
        span.set_attributes(_named("celery_dlq", marks))


@_guarded
def mark_end(task: TaskOptions, request: Context, ending: RunEnd) -> None:
    """Note that a retry was sent, or that the message dies."""
    span, scope = _span(), _scope()
    if span is None and scope is None:
        return
    run, failure = Run.of(str(task.name), request), ending.failure
    marks: dict[str, Any] = {"redrive": run.redrive or None}
    if failure is None:
        kind, verdict, rule = "retry", Verdict.TRANSIENT, ending.rule
        marks["delay"] = _delay_of(request)
    else:
        kind, verdict, rule = "letter", failure.explanation.verdict, failure.explanation.rule
        group = task._wiring.grouping.fingerprint_of(
            str(task.name), failure, request.args or (), request.kwargs or {}
        )
        group = within(task._wiring.settings.own_namespace, group)
        marks |= {"letter": run.letter or run.task_id, "group": group}
        _tag(scope, marks)
        marks["reason"] = failure.reason.value
    if span is not None:
        decided = {"verdict": verdict.value, "rule": rule, "attempt": run.attempt}
        span.add_event(f"celery_dlq.{kind}", _named("celery_dlq", {**marks, **decided}))


def _span() -> Span | None:
    """The open span, which is that of the run if the tasks are instrumented."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace

    span = trace.get_current_span()
    return span if span.is_recording() else None


def _scope() -> Any:
    """Sentry's scope of the run. Without Sentry's integration for Celery, all runs of a process share one."""
    sentry = sys.modules.get("sentry_sdk")
    if sentry is None or sentry.get_client().get_integration("celery") is None:
        return None
    return sentry.get_isolation_scope()


def _delay_of(request: Context) -> float | None:
    """The seconds until the retry; None if they are unknown."""
    sent = successor_of(request)
    when = sent.when if isinstance(sent, Retry) else None
    if isinstance(when, datetime):
        when = (when.astimezone(timezone.utc) - datetime.now(timezone.utc)).total_seconds()
    return float(when) if isinstance(when, (int, float)) else None


def _tag(scope: Any, marks: Marks) -> None:
    if scope is not None:
        for name, value in _named("dlq", marks).items():
            scope.set_tag(name, str(value))


def _named(prefix: str, marks: Marks) -> dict[str, Any]:
    return {f"{prefix}.{name}": value for name, value in marks.items() if value is not None}
