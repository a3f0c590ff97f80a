"""Puts an app on a store, a broker and directories for a test, and gives it its own ones back afterwards."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.hooks.event import EventKind
from celery_dlq.model.route import Route
from celery_dlq.settings import READ_URL_VARIABLE, STORE_URL_VARIABLE, Settings

#: The parts of an app that Celery makes of its settings, and keeps.
_MADE_OF_SETTINGS = ("amqp", "control", "events")

#: They override settings.
_VARIABLES = (
    "CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL", "CELERY_RESULT_BACKEND",
    STORE_URL_VARIABLE, READ_URL_VARIABLE,
)  # fmt: skip

#: The settings that have their default in a test.
_LIKE_NEW = (
    "store_read_url", "recorder_dir", "archive_url", "retention", "auto_redrive", "ingest_queues",
    "worker_metrics", *(kind.setting for kind in EventKind),
)  # fmt: skip

#: For a worker in the test's process: a broker and results that end with it.
IN_MEMORY: Mapping[str, Any] = {
    "broker_url": "memory://localhost",
    "broker_read_url": "memory://localhost",
    "broker_write_url": "memory://localhost",
    # It looks for messages every 10 ms.
    "broker_transport_options": {"polling_interval": 0.01},
    "broker_use_ssl": False,
    "result_backend": "cache+memory://",
    "worker_detect_quorum_queues": False,
    # It is for workers that are killed.
    "dlq_recorder": False,
}


def settings_of_test(app: Any, directory: Path) -> dict[str, Any]:
    """The settings that keep a test away from other places, and from everything that acts without it: hooks,
    automatic redrives, retention and queues to bring in."""
    return {
        "task_always_eager": False,
        "task_protocol": 2,
        "worker_enable_remote_control": True,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "dlq_store_url": f"sqlite:///{directory}/letters.sqlite3",
        "dlq_spool_dir": str(directory / "spool"),
        "dlq_stall_after": 0,
        "dlq_routes": [_quiet(route) for route in app.conf.get("dlq_routes") or ()],
        **{f"dlq_{name}": getattr(Settings, name) for name in _LIKE_NEW},
    }


def _quiet(route: Any) -> Any:
    return replace(route, hooks=()) if isinstance(route, Route) else route


@contextlib.contextmanager
def isolated(app: Any, settings: Mapping[str, Any]) -> Iterator[DeadLetterQueue]:
    """The dead-letter queue of ``app``, while the app has these settings over its own. After this block the
    app has all that it had before: hooks, handlers and connections, too."""
    app.finalize()
    queue = DeadLetterQueue.of(app)
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ))
        for variable in _VARIABLES:
            os.environ.pop(variable, None)
        app.conf.get("broker_url")  # loads a configuration that is still pending
        stack.enter_context(patch.dict(app.conf.changes, settings))
        stack.enter_context(_emptied(app))
        stack.enter_context(patch.dict(vars(queue), clear=True))
        # In the same object, to which the tasks are bound.
        DeadLetterQueue.__init__(queue, app)
        try:
            yield queue
        finally:
            if "store" in vars(queue):
                queue.store.close()


@contextlib.contextmanager
def _emptied(app: Any) -> Iterator[None]:
    """Have ``app`` make again what it makes of its settings."""
    own = {"_pool": None, "_backend_cache": None}
    with patch.dict(vars(app), own), patch.dict(vars(app._local)):
        for name in _MADE_OF_SETTINGS:
            vars(app).pop(name, None)
        vars(app._local).pop("backend", None)
        yield
