"""Events as lines in a log."""

from __future__ import annotations

import logging

from celery_dlq.hooks.event import GOOD_NEWS, Event, EventHook
from celery_dlq.hooks.words import data, line


class Log(EventHook):
    """Writes one line for each event: at level INFO if a letter was redriven or resolved, otherwise WARNING.
    Its log record has the event as ``dlq_event``, a dictionary, for formatters.

    :param logger: name of the logger.
    """

    def __init__(self, logger: str = "celery_dlq.events") -> None:
        self._logger = logging.getLogger(logger)

    def __call__(self, event: Event) -> None:
        level = logging.INFO if event.kind in GOOD_NEWS else logging.WARNING
        fields = {"type": event.kind.value, "id": event.id, **data(event)}
        self._logger.log(level, "%s", line(event), extra={"dlq_event": fields})
