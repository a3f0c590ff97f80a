"""The part of the Python API for the flight recorder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any

from celery_dlq.api.parts import AppParts
from celery_dlq.model.letter import DeadLetter, Outcome
from celery_dlq.recorder import FlightRecorder, Left, Standing, look, standing

if TYPE_CHECKING:
    from celery_dlq.metrics.worker import Recording
    from celery_dlq.spool import Record, Spool
    from celery_dlq.store import Store
    from celery_dlq.store.lost import RecorderReport
    from celery_dlq.upkeep.recovery import Recovered, Recovery
    from celery_dlq.worker.capture import Capture


class RecorderAPI(AppParts):
    """The methods of a dead-letter queue for the flight recorder."""

    client: Any
    _captures: tuple[Capture, ...]

    def recorded(self) -> Iterator[Left]:
        """The directories of the workers in the flight recorder's directory on this machine.

        :raises OSError: they cannot be read.
        """
        return look(self.recorder_dir)

    def recover(self, *, began_at: datetime | None = None) -> Iterator[Recovered]:
        """Make letters of the messages that were running when their worker was killed; yields what was found
        for each worker. Files of living workers are left alone.

        :param began_at: when the worker began that calls this; None if a person does. A worker that has just
            begun waits for messages that the broker may still have.
        :raises StoreError: the store failed; the remaining messages stay in their files.
        :raises OSError: the directory cannot be read.
        """
        yield from self._recovery.run(self._store_with_spooled, began_at=began_at)

    def _store_with_spooled(self) -> Store:
        """The store, with what the spool had. While the store was away, a worker may have put the end of a
        message into the spool, and been killed before it marked the message.

        :raises StoreError: the store failed; the remaining letters stay in the spool.
        """
        # A spool of its own, because a writer's thread uses the other one.
        with contextlib.closing(self._new_spool()) as spool:
            for _ in spool.drain(self._save):
                pass
        return self.store

    def uncovered(self) -> list[RecorderReport]:
        """A report about this worker, if it runs messages without a copy now."""
        from celery_dlq.upkeep.lost_messages import uncovered

        found = [capture.trouble for capture in self._captures]
        troubles = [trouble for trouble in found if trouble is not None]
        return [uncovered(self.client.node, troubles)] if troubles else []

    def recorder_standing(self) -> Standing | None:
        """The messages in the flight recorder's directory on this machine; None if it cannot be read."""
        try:
            return standing(self.recorded())
        except OSError:
            return None

    @cached_property
    def _recovery(self) -> Recovery:
        from celery_dlq.upkeep.recovery import Recovery

        return Recovery(
            self.app, self, self.recorder_dir, save=self.store_records, put_aside=self._spool_apart
        )

    def _recording(self) -> Recording | None:
        from celery_dlq.metrics.worker import Recording

        recorders = [capture.flight_recorder for capture in self._captures]
        found = self.recorder_standing()
        if found is None:
            return None
        now = datetime.now(timezone.utc)
        return Recording(
            recorded=sum(one.recorded for one in recorders),
            unrecorded=sum(one.uncovered for one in recorders),
            unrecovered=found.unrecovered,
            age_s=(now - found.oldest_at).total_seconds() if found.oldest_at else 0.0,
        )

    def store_records(self, records: Sequence[Record]) -> list[int]:
        """Store letters and outcomes. The queue opens the store."""
        raise NotImplementedError

    def _save(self, records: Sequence[Record]) -> None:
        raise NotImplementedError

    def _new_spool(self) -> Spool:
        raise NotImplementedError

    def _spool_apart(self, what: DeadLetter | Outcome) -> None:
        raise NotImplementedError

    def _new_flight_recorder(self) -> FlightRecorder:
        chosen = self.settings
        return FlightRecorder(
            self.recorder_dir,
            worker=self.client.node,
            max_size=chosen.recorder_max_size,
            sync=chosen.recorder_sync,
        )
