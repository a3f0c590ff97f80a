"""Task events about dead letters, for monitors such as Flower."""

from __future__ import annotations

from typing import Any

from celery.utils.log import get_logger
from celery.worker import state

logger = get_logger(__name__)

#: Celery shows an event of an unknown type as a state of that name, except for a task that has failed: only a
#: field ``state`` replaces FAILURE, and only if it comes after ``task-failed``.
DEAD_LETTERED, REDRIVEN = "task-dead-lettered", "task-redriven"

#: The state of a dead letter while its message runs again.
REDRIVEN_STATE = "REDRIVEN"


def tell_dead(request: Any) -> None:
    """Announce that the message of ``request`` is a dead letter. In a cold shutdown, Celery does not announce
    failures either."""
    if not state.should_terminate:
        _tell(request, DEAD_LETTERED, request.task.dlq.settings.event_state)


def tell_redriven(request: Any) -> None:
    """Announce that a worker has the message of ``request`` again."""
    _tell(request, REDRIVEN, REDRIVEN_STATE)


def _tell(request: Any, event: str, shown_as: str | None) -> None:
    settings = request.task.dlq.settings
    if not settings.events:
        return
    shown = {} if settings.event_state is None else {"state": shown_as}
    try:
        # Celery sends it only if the worker and the task send events. Without the name, Flower lists a task
        # that is new to it as "null".
        request.send_event(event, name=request.name, **shown)
    except Exception:
        logger.exception(
            "could not send an event about %s[%s]: %s", request.name, request.id, event
        )
