"""Events as lines in a log."""

from __future__ import annotations

import logging

from celery_dlq.hooks.event import Event, EventHook, EventKind
from celery_dlq.hooks.words import data, line

_GOOD_NEWS = frozenset({EventKind.REDRIVEN, EventKind.RESOLVED})


class Log(EventHook):
    """Writes one line for each event: a warning, or information where a letter is on its way or resolved.
    A formatter finds the event as ``dlq_event``, a dictionary.

    :param logger: name of the logger.
    """

    def __init__(self, logger: str = "celery_dlq.events") -> None:
        self._logger = logging.getLogger(logger)

    def __call__(self, event: Event) -> None:
        level = logging.INFO if event.kind in _GOOD_NEWS else logging.WARNING
        told = {"type": event.kind.value, "id": event.id, **data(event.value)}
        self._logger.log(level, "%s", line(event), extra={"dlq_event": told})
