"""The part of the Python API that says how it goes: the flight recorder, and metrics."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING

from celery_dlq.api.parts import AppParts
from celery_dlq.api.recorder import Recorder
from celery_dlq.metrics.families import need_prometheus
from celery_dlq.spool.directory import Spool

if TYPE_CHECKING:
    from celery_dlq.metrics.collector import Registry
    from celery_dlq.metrics.snapshot import Reading, Snapshots
    from celery_dlq.metrics.worker import Recording, WorkerMeter


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
