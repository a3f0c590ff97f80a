"""What monitors that follow task events, such as Flower, are told."""

from __future__ import annotations

from typing import Any

from celery.utils.log import get_logger
from celery.worker import state

logger = get_logger(__name__)

#: Celery shows an event of a type that it does not know as a state of that name, but for a task that has
#: failed: only a field ``state`` wins over FAILURE, and only when it comes after ``task-failed``.
DEAD_LETTERED, REDRIVEN = "task-dead-lettered", "task-redriven"

#: What a dead letter is shown as while its message runs anew, until that ends.
REDRIVEN_STATE = "REDRIVEN"


def tell_dead(request: Any) -> None:
    """Say that the message of ``request`` is a dead letter. In a cold shutdown, Celery tells of no failure
    either."""
    if not state.should_terminate:
        _tell(request, DEAD_LETTERED, request.task.dlq.settings.event_state)


def tell_redriven(request: Any) -> None:
    """Say that a worker has the message of ``request`` again."""
    _tell(request, REDRIVEN, REDRIVEN_STATE)


def _tell(request: Any, event: str, shown_as: str | None) -> None:
    settings = request.task.dlq.settings
    if not settings.events:
        return
    shown = {} if settings.event_state is None else {"state": shown_as}
    try:
        # Celery sends it only where the worker and the task send events. Without the name, Flower lists
        # a task that it had not heard of as "null".
        request.send_event(event, name=request.name, **shown)
    except Exception:
        logger.exception("no event tells of %s[%s]: %s", request.name, request.id, event)
