"""The part of the Python API for the flight recorder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any

from celery_dlq.api.parts import AppParts
from celery_dlq.model.letter import DeadLetter, Outcome
from celery_dlq.recorder import FlightRecorder, Left, LeftState, look

if TYPE_CHECKING:
    from celery_dlq.metrics.worker import Recording
    from celery_dlq.spool import Record
    from celery_dlq.upkeep.recovery.engine import Recovered, Recovery
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

    def recover(self) -> Iterator[Recovered]:
        """Make letters of the messages that were running when their worker was killed; yields what was found
        for each worker. Files of living workers are left alone.

        :raises StoreError: the store failed; the remaining messages stay in their files.
        :raises OSError: the directory cannot be read.
        """
        yield from self._recovery.run(lambda: self.store)

    @cached_property
    def _recovery(self) -> Recovery:
        from celery_dlq.upkeep.recovery.engine import Recovery

        return Recovery(
            self.app, self, self.recorder_dir, save=self.store_records, put_aside=self._spool_apart
        )

    def show_life(self) -> None:
        """Show workers on other machines that the workers in this process live."""
        for capture in self._captures:
            capture.show_life()

    def _recording(self) -> Recording | None:
        from celery_dlq.metrics.worker import Recording

        recorders = [capture.flight_recorder for capture in self._captures]
        try:
            left = [one for one in self.recorded() if one.state is LeftState.GONE and one.messages]
        except OSError:
            return None
        now = datetime.now(timezone.utc)
        ages = [(now - one.written_at).total_seconds() for one in left]
        return Recording(
            recorded=sum(one.recorded for one in recorders),
            unrecorded=sum(one.uncovered for one in recorders),
            unrecovered=sum(one.messages for one in left),
            age_s=max(ages, default=0.0),
        )

    def store_records(self, records: Sequence[Record]) -> list[int]:
        """Store letters and outcomes. The queue opens the store."""
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
