"""Puts an app on other places than its own, such as those of a test or a drill, and gives it its own ones
back afterwards."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.model.route import Route
from celery_dlq.settings import STORE_URL_VARIABLE, Settings

#: The parts of an app that Celery makes of its settings, and keeps.
_MADE_OF_SETTINGS = ("amqp", "control", "events")

#: They override settings.
_VARIABLES = (
    "CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL", "CELERY_RESULT_BACKEND",
    STORE_URL_VARIABLE,
)  # fmt: skip

#: The settings that have their default: they are about other places, or let the app act by itself.
_LIKE_NEW = (
    "recorder_dir", "archive_url", "retention", "auto_redrive", "worker_metrics", "hooks",
)  # fmt: skip


@contextlib.contextmanager
def isolated(app: Any, settings: Mapping[str, Any]) -> Iterator[DeadLetterQueue]:
    """The dead-letter queue of ``app``, while the app has these settings over its own, and does nothing by
    itself: no hooks, handlers, automatic redrives, retention, or queues to bring in. After this block the app
    has all that it had before."""
    app.finalize()
    queue = DeadLetterQueue.of(app)
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ))
        for variable in _VARIABLES:
            os.environ.pop(variable, None)
        app.conf.get("broker_url")  # loads a configuration that is still pending
        stack.enter_context(patch.dict(app.conf.changes, {**_inactive(app), **settings}))
        stack.enter_context(_emptied(app))
        stack.enter_context(patch.dict(vars(queue), clear=True))
        # In the same object, to which the tasks are bound.
        DeadLetterQueue.__init__(queue, app)
        try:
            yield queue
        finally:
            if "store" in vars(queue):
                queue.store.close()


def _inactive(app: Any) -> dict[str, Any]:
    routes = app.conf.get("dlq_routes") or ()
    return {
        "task_always_eager": False,
        "dlq_routes": [replace(one, hooks=()) if isinstance(one, Route) else one for one in routes],
        **{f"dlq_{name}": getattr(Settings, name) for name in _LIKE_NEW},
    }


@contextlib.contextmanager
def _emptied(app: Any) -> Iterator[None]:
    """Have ``app`` make again what it makes of its settings."""
    own = {"_pool": None, "_backend_cache": None}
    with patch.dict(vars(app), own), patch.dict(vars(app._local)):
        for name in _MADE_OF_SETTINGS:
            vars(app).pop(name, None)
        vars(app._local).pop("backend", None)
        yield
