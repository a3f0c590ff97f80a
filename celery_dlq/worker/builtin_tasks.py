"""Changes to Celery's own tasks in a worker. ``celery.map`` runs tasks of the user and ``celery.group`` sends
them: messages that carry a :class:`~celery_dlq.worker.task.DLQTask` are captured. ``celery.chord_unlock``
keeps the members of a chord that failed."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from celery.result import GroupResult, result_from_tuple
from celery.utils.log import get_logger

from celery_dlq.classify import Decision
from celery_dlq.model.handling import CARRIERS, is_of_user
from celery_dlq.model.headers import chord_key
from celery_dlq.worker.body.judge import decide
from celery_dlq.worker.failure import logged
from celery_dlq.worker.task import DLQTask

logger: logging.Logger = get_logger(__name__)

#: The most values of a message among which a task is looked for. The task comes before the items.
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
    for part in islice(left, _LOOKED_AT):  # the loop adds to the list
        if isinstance(part, Mapping):
            name = part.get("task")
            is_named = isinstance(name, str) and is_of_user(name)
            if is_named and isinstance(task := app.tasks.get(name), DLQTask):
                return task
            left += part.values()
        elif isinstance(part, (list, tuple)):
            left += part
    return None


def keep_chord_headers(app: Any) -> None:
    """Save the members of each chord of ``app`` in its result backend when the chord fails. Without this, a
    redrive could not complete the chord.

    It is needed on a result backend that does not count members (a database, the file system). There
    ``celery.chord_unlock`` polls the members. Only its message names them, and the message is gone once the
    chord has failed (celery 5.7.0, app/builtins.py, lines 108 to 122; the same since 5.5). This is a missing
    feature: no issue upstream names it.

    It can be deleted when Celery itself keeps the members of a chord that failed. The tests in
    ``tests/unit/redrive/test_polled_chords.py`` fail without it.
    """
    unlock = app.tasks.get("celery.chord_unlock")
    # Celery calls this class with the members. A user's own task in its place may not accept it.
    if unlock is not None and "GroupResult" in inspect.signature(unlock.run).parameters:
        unlock.run = functools.partial(unlock.run, GroupResult=_Header)


class _Header(GroupResult):  # type: ignore[misc]
    """The members of a chord, which are saved if one of them failed."""

    def join(self, *args: Any, **kwargs: Any) -> Any:
        """The members' results.

        :raises Exception: of a member that failed.
        """
        return self._kept_on_failure(super().join, *args, **kwargs)

    def join_native(self, *args: Any, **kwargs: Any) -> Any:
        """The members' results, on a backend that joins in a way of its own."""
        return self._kept_on_failure(super().join_native, *args, **kwargs)

    def _kept_on_failure(self, join: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return join(*args, **kwargs)
        except Exception:
            self._keep()
            raise

    def _keep(self) -> None:
        backend, key = self.app.backend, chord_key(self.id)
        said = "chord %s cannot be completed by a redrive: its members are not saved"
        with logged(logger, said, self.id):
            backend.delete_group(key)  # a database refuses a second group with this key
            # New objects for the same members: the ones here hold the failure, and would raise it when saved.
            backend.save_group(key, result_from_tuple(self.as_tuple(), app=self.app))
