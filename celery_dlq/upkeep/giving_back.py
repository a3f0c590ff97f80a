"""Gives the messages that a killed worker had received, and not acknowledged, back to the broker."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from celery.utils.log import get_logger

from celery_dlq.recorder import Taken
from celery_dlq.recorder.owner import pool_may_run
from celery_dlq.recorder.tags import forget_noted, has_noted, noted_in
from celery_dlq.worker.celery_quirks.unacked import Whereabouts
from celery_dlq.worker.celery_quirks.visibility import kind_of

logger: logging.Logger = get_logger(__name__)


class Returns:
    """Gives messages back on the broker of ``app``. Those of another broker stay, for a worker there.

    :param is_on: ``dlq_restore_unacked``; without it, the visibility timeout decides.
    """

    def __init__(self, app: Any, *, is_on: bool = True) -> None:
        self._app, self._is_on, self._trouble = app, is_on, ""

    def run(self, found: Taken) -> Mapping[str, Whereabouts]:
        """Give back the messages of a process that is gone; returns where each of them is now, by its tag. If
        the broker is away, or a process of its pool may still run one of them, the notes stay for later."""
        directory = found.directory
        if not (self._is_on and found.ran_here and has_noted(directory)):
            # Of another machine, it will never be certain that its pool is gone. Without notes, the directory
            # is removed.
            forget_noted(directory, "*")
            return {}
        if pool_may_run(directory):
            return {}
        try:
            given = self._give_back(found)
        except Exception as error:  # noqa: BLE001 - transports raise anything
            if str(error) != self._trouble:
                self._trouble = str(error)
                logger.error(  # noqa: TRY400 - the message names the cause
                    "messages of the killed worker %s cannot be given back now: %s",
                    found.worker,
                    error,
                )
            return {}
        self._trouble = ""
        back = sum(place is Whereabouts.GIVEN_BACK for place in given.values())
        if back:
            logger.warning(
                "%d messages that the killed worker %s had received are back in their queues",
                back, found.worker,
            )  # fmt: skip
        return given

    def _give_back(self, found: Taken) -> Mapping[str, Whereabouts]:
        # Not its default channel, which would wait for a broker that is away.
        with self._app.connection_for_read() as connection, connection.channel() as channel:
            kind = kind_of(channel)
            if kind is None:
                return {}
            broker = kind.broker_of(channel)
            noted = noted_in(found.directory, broker)
            if noted:
                # The types of the exchanges decide in which queues a message belongs.
                for queue in self._app.amqp.queues.values():
                    queue(channel).declare()
            if not kind.is_repeatable:
                forget_noted(found.directory, broker)
            given = kind.give_back(channel, noted, found.directory.name)
        forget_noted(found.directory, broker)
        return given
