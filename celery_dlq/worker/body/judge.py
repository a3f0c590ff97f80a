"""Judges an exception of a task's body: the task's own ``classify()``, its rules, the app's and the built-in
ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from celery.utils.log import get_logger

from celery_dlq.classify import Classifier, Decision, Rule, rules_for
from celery_dlq.errors import SettingsError
from celery_dlq.model.states import Verdict
from celery_dlq.worker.failure import is_shutdown
from celery_dlq.worker.options import TaskOptions

logger: logging.Logger = get_logger(__name__)

#: The options of a task from which its rules are made.
_RULE_OPTIONS = (
    "dont_autoretry_for", "throws", "dlq_terminal", "autoretry_for", "dlq_transient", "dlq_rules",
)  # fmt: skip


def decide(task: TaskOptions, exc: BaseException) -> Decision:
    """The verdict on ``exc`` of the task's own ``classify()``; if that gives none, or fails, the verdict of
    the task's rules, the app's and the built-in ones."""
    try:
        own = task.classify(exc)
        if own is not None:
            return (
                own if isinstance(own, Decision) else Decision(Verdict(own), rule="task.classify")
            )
    except BaseException as error:
        if is_shutdown(error):
            raise
        # A SystemExit is caught, too, because it would replace the task's own error.
        logger.exception("%s.classify() failed; the rules decide instead", task.name)
    return classifier_of(task).decide(exc)


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
