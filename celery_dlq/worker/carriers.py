"""Celery's own tasks that carry tasks of the user: ``celery.map`` runs them, ``celery.group`` sends them. A
worker captures each message that carries a :class:`~celery_dlq.worker.task.DLQTask`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from celery_dlq.classify import Decision
from celery_dlq.model.handling import CARRIERS, is_of_user
from celery_dlq.worker.body.judge import decide
from celery_dlq.worker.task import DLQTask

#: The most values of a message among which a task is looked for: it comes before the items.
_LOOKED_AT = 10_000


class Carrier(DLQTask):
    """The second base class that a task of Celery's own gets in a worker."""

    abstract = True
    #: Another attempt would run items again that have succeeded. ``task_annotations`` may allow it.
    max_retries = 0
    # A failure says more about the carried task than about all messages of this one.
    dlq_breaker_failures = 0
    _makes_letters = True
    #: The task as Celery made it, for the other messages.
    _celerys: Any

    # It polls by retries of its own.
    _built_in = property(lambda self: self.name == "celery.chord_unlock")

    def start_strategy(self, app: Any, consumer: Any, **kwargs: Any) -> Callable[..., Any]:
        """Called by each consumer of a worker, once per connection to the broker."""
        captured = super().start_strategy(app, consumer, **kwargs)
        uncaptured = self._celerys.start_strategy(app, consumer, **kwargs)

        def strategy(message: Any, *args: Any, **options: Any) -> Any:
            payload = message.payload
            if isinstance(payload, Mapping):  # the protocol of Celery 3
                payload = payload.get("args"), payload.get("kwargs")
            parts = payload[:2] if isinstance(payload, (list, tuple)) else ()
            take = uncaptured if _carried(app, *parts) is None else captured
            return take(message, *args, **options)

        return strategy

    def classify(self, exc: BaseException) -> Decision | None:
        """The verdict that the carried task would give."""
        task = _carried(self.app, self.request.args, self.request.kwargs)
        if task is None:
            return None
        own = decide(task, exc)
        carries = f"it carries {task.name}; a redrive runs its whole message again"
        evidence = "; ".join(filter(None, (own.evidence, carries)))
        # The attempts of a rule are for a message that runs the task once.
        return replace(own, evidence=evidence, schedule=None)


def capture_carriers(app: Any) -> None:
    """Let the workers of this process capture the messages that carry tasks on DLQTask."""
    for name in CARRIERS:
        task = app.tasks.get(name)
        # A user may have put a task of their own in its place.
        if task is not None and task.__module__ == "celery.app.builtins":
            own = {"_celerys": task, "__module__": __name__}
            app.tasks[name] = type(type(task).__name__, (type(task), Carrier), own)()
            app.tasks[name].bind(app)


def _carried(app: Any, *parts: Any) -> DLQTask | None:
    """The first task on DLQTask whose signature is in ``parts`` of a message."""
    left = [*parts]
    for part in islice(left, _LOOKED_AT):  # which grows in the meantime
        if isinstance(part, Mapping):
            name = part.get("task")
            is_named = isinstance(name, str) and is_of_user(name)
            if is_named and isinstance(task := app.tasks.get(name), DLQTask):
                return task
            left += part.values()
        elif isinstance(part, (list, tuple)):
            left += part
    return None
