"""The part of the Python API that says how it goes: ``dlq.recorder``, which reads the files of the flight
recorder and makes letters of the messages of killed workers, and metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING

from celery_dlq.api.parts import AppParts
from celery_dlq.metrics.families import need_prometheus
from celery_dlq.recorder.files import ProcessFiles, Standing, look, standing
from celery_dlq.spool.directory import Spool

if TYPE_CHECKING:
    from celery_dlq.metrics.collector import Registry
    from celery_dlq.metrics.snapshot import Reading, Snapshots
    from celery_dlq.metrics.worker import Recording, WorkerMeter
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


class MetricsAPI(AppParts):
    """The flight recorder and the metrics of a dead-letter queue."""

    @cached_property
    def recorder(self) -> Recorder:
        """The messages in the flight recorder's directory on this machine."""
        return Recorder(self)

    def _recording(self) -> Recording | None:
        from celery_dlq.metrics.worker import Recording

        recorders = [capture.flight_recorder for capture in self.captures]
        found = self.recorder.standing()
        if found is None:
            return None
        now = datetime.now(timezone.utc)
        return Recording(
            recorded=sum(one.recorded for one in recorders),
            unrecorded=sum(one.uncovered for one in recorders),
            unrecovered=found.unrecovered,
            age_s=(now - found.oldest_at).total_seconds() if found.oldest_at else 0.0,
        )

    @cached_property
    def snapshots(self) -> Snapshots[Reading]:
        """A recent snapshot of the store's numbers."""
        from celery_dlq.metrics.snapshot import Snapshots

        return Snapshots(self.measure, patience_s=2 * self.settings.store_timeout)

    def measure(self) -> Reading:
        """The numbers of the store, and of the spool on this machine.

        :raises StoreError: the store failed.
        """
        from celery_dlq.metrics.snapshot import Reading

        store = self.store
        return Reading(
            store.monitoring.measures(), store.reports.keeping(), store.recorder_reports.look(store.now()),
            self._spool_size(), store.clock_ahead().total_seconds(),
        )  # fmt: skip

    def register_metrics(self, registry: Registry | None = None) -> None:
        """Show the store's numbers on a registry of ``prometheus_client``, the default one unless
        another is given. Call it once in each process that is scraped. A separate thread asks the
        store, so a scrape never waits long for it.

        :raises MissingExtra: ``prometheus_client`` is not installed.
        """
        need_prometheus()
        from celery_dlq.metrics.collector import register

        register(self.snapshots, registry)

    @cached_property
    def meter(self) -> WorkerMeter | None:
        """The recorder of this worker's metrics; None if worker metrics are off.

        :raises MissingExtra: ``prometheus_client`` is not installed.
        """
        if not self.settings.worker_metrics:
            return None
        need_prometheus()
        from celery_dlq.metrics.worker import meter_on

        return meter_on(self._spool_size, self._recording, self._stalled)

    def _stalled(self) -> int:
        """How many workers of this process are stalled."""
        return sum(capture.reception.stall is not None for capture in self.captures)

    def _spool_size(self) -> int | None:
        try:
            # Not the writer's spool, which only one thread at a time may use.
            return Spool(self.settings.spool_dir).size()
        except OSError:
            return None
