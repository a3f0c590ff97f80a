"""The flight recorder in the Python API: ``dlq.recorder`` reads its files, and makes letters of the messages
of killed workers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from celery_dlq.api.parts import AppParts
from celery_dlq.recorder.files import ProcessFiles, Standing, look, standing

if TYPE_CHECKING:
    from celery_dlq.model.worker import RecorderReport
    from celery_dlq.store import Store
    from celery_dlq.upkeep.recovery import Recovered, Recovery


class Recorder:
    """The messages in the flight recorder's directory on this machine."""

    def __init__(self, dlq: AppParts) -> None:
        self._dlq = dlq

    def look(self) -> Iterator[ProcessFiles]:
        """The directories of the workers in the flight recorder's directory on this machine.

        :raises OSError: they cannot be read.
        """
        return look(self._dlq.recorder_dir)

    def recover(
        self, *, began_at: datetime | None = None, only_new: bool = False
    ) -> Iterator[Recovered]:
        """Make letters of the messages that were running when their worker was killed; yields what was found
        for each worker. Files of living workers are left alone.

        :param began_at: when the worker began that calls this; None if a person does. A worker that has just
            begun waits for messages that the broker may still have.
        :param only_new: only processes of this machine that were not found gone before.
        :raises StoreError: the store failed; the remaining messages stay in their files.
        :raises OSError: the directory cannot be read.
        """
        yield from self._recovery.run(
            self._store_with_spooled, began_at=began_at, only_new=only_new
        )

    def _store_with_spooled(self) -> Store:
        """The store, after the letters of the spool have come into it. While the store was away, a worker may
        have put the end of a message into the spool, and been killed before it marked the message.

        :raises StoreError: the store failed; the remaining letters stay in the spool.
        """
        # A spool of its own, because a writer's thread uses the other one.
        with contextlib.closing(self._dlq.new_spool()) as spool:
            for _ in self._dlq.drain_spool(spool):
                pass
        return self._dlq.store

    def uncovered(self) -> list[RecorderReport]:
        """A report about this worker, if it runs messages without a copy now."""
        from celery_dlq.upkeep.lost_messages import uncovered

        found = [capture.trouble for capture in self._dlq.captures]
        troubles = [trouble for trouble in found if trouble is not None]
        return [uncovered(self._dlq.client.node, troubles)] if troubles else []

    def standing(self) -> Standing | None:
        """The messages in the flight recorder's directory on this machine; None if it cannot be read."""
        try:
            return standing(self.look())
        except OSError:
            return None

    @cached_property
    def _recovery(self) -> Recovery:
        from celery_dlq.upkeep.recovery import GiveBack, Recovery

        dlq = self._dlq
        return Recovery(
            dlq.app, dlq, dlq.recorder_dir, save=dlq.store_records, put_aside=dlq.spool_apart,
            give_back=GiveBack(dlq.app, is_on=dlq.settings.restore_unacked).run,
        )  # fmt: skip
