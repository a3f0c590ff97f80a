"""Finds tasks on ``DLQTask`` that are not fully captured. A worker logs them when it starts, and the doctor
reports them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from celery import Task
from celery.worker import strategy
from kombu.utils.imports import symbol_by_name

from celery_dlq.model.handling import is_of_user
from celery_dlq.worker.batches import has_own_flush, is_batched
from celery_dlq.worker.end.classes import capturing
from celery_dlq.worker.end.request import DLQRequest
from celery_dlq.worker.task import DLQTask

#: The methods of a Request class that are called for a run that failed.
_ENDS = ("on_failure", "on_timeout")


@dataclass(frozen=True)
class Gap:
    """A part of a task that is not captured."""

    task: str
    #: The gap in words, and the next step.
    why: str
    #: Whether its failures do not become letters.
    loses_letters: bool = True


def dlq_tasks(app: Any) -> list[Any]:
    """The app's tasks on DLQTask, in the order of their names."""
    return [task for task in _own_tasks(app) if isinstance(task, DLQTask)]


def other_tasks(app: Any) -> list[Any]:
    """The tasks on another base class, which are not captured at all."""
    return [task for task in _own_tasks(app) if not isinstance(task, DLQTask)]


def _own_tasks(app: Any) -> list[Any]:
    # With DLQTask as the app's task_cls, Celery's own tasks are based on it, too, but never judged.
    return [app.tasks[name] for name in sorted(app.tasks) if is_of_user(name)]


def own_senders(app: Any) -> list[str]:
    """The tasks on DLQTask whose own ``apply_async()`` may not send their retries: it does not name
    ``retries``, which only the options of a retry have."""
    return [task.name for task in dlq_tasks(app) if task._sends_itself and _ignores_retries(task)]


def _ignores_retries(task: DLQTask) -> bool:
    bases = (vars(base) for base in type(task).__mro__ if base not in (DLQTask, Task))
    first = next(base["apply_async"] for base in bases if "apply_async" in base)
    code = getattr(inspect.unwrap(first), "__code__", None)
    return code is None or "retries" not in (*code.co_consts, *code.co_names, *code.co_varnames)


def gaps(app: Any) -> list[Gap]:
    """The gaps of all tasks of ``app``."""
    return [gap for task in dlq_tasks(app) for gap in _gaps_of(task)]


def _gaps_of(task: Any) -> Iterator[Gap]:
    yield from _request_gaps(task)
    yield from _strategy_gaps(task)
    if _skips(_overriders(type(task), "__call__", above=DLQTask), "__call__"):
        why = (
            "its __call__() does not call super().__call__(), so its failures are neither classified nor "
            "retried; each becomes a letter at once. Call it"
        )
        yield Gap(task.name, why, loses_letters=False)


def _request_gaps(task: Any) -> Iterator[Gap]:
    request = capturing(task)
    if request is None:
        why = (
            f"its Request class {_name_of(task.Request)} cannot be combined with celery_dlq's, so its "
            "failures are not captured; derive it from celery_dlq.worker.end.request.DLQRequest"
        )
        yield Gap(task.name, why)
        return
    for end in _ENDS:
        if _skips(_overriders(request, end, above=DLQRequest), end):
            why = (
                f"{end}() of its Request class {_name_of(task.Request)} does not call super().{end}(), so "
                "its failures are not captured; call it"
            )
            yield Gap(task.name, why)


def _strategy_gaps(task: Any) -> Iterator[Gap]:
    if is_batched(task):
        if has_own_flush(task):
            why = (
                "its flush() replaces that of celery-batches, so the failures of its batches are not "
                "captured; remove it"
            )
            yield Gap(task.name, why)
    elif symbol_by_name(task.Strategy) is not strategy.default:
        why = (
            f"it has a Strategy of its own, {_name_of(task.Strategy)}: its failures are captured only if "
            "that gives requests of the task's Request class to the consumer, as Celery's does"
        )
        yield Gap(task.name, why, loses_letters=False)


def _overriders(cls: type, method: str, *, above: type) -> list[Any]:
    """The functions that the classes before ``above`` define as ``method``."""
    before = cls.__mro__[: cls.__mro__.index(above)]
    return [vars(base)[method] for base in before if base is not Task and method in vars(base)]


def _skips(methods: list[Any], name: str) -> bool:
    """Whether one of ``methods`` cannot call that of the next class: its code names neither ``super`` nor the
    method. Code that names one of them is assumed to call it."""
    return any(
        inspect.isfunction(function := inspect.unwrap(method))
        and not {"super", name}.intersection(function.__code__.co_names)
        for method in methods
    )


def _name_of(symbol: Any) -> str:
    if isinstance(symbol, str):
        return symbol
    return str(getattr(symbol, "__qualname__", symbol))
