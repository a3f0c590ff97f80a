"""The part of :class:`~celery_dlq.DeadLetterQueue` that is about metrics."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from celery_dlq.metrics.extra import need_prometheus
from celery_dlq.settings import Settings
from celery_dlq.spool import Spool

if TYPE_CHECKING:
    from celery_dlq.metrics.collector import Registry
    from celery_dlq.metrics.reading import Reading
    from celery_dlq.metrics.snapshot import Snapshots
    from celery_dlq.metrics.worker import WorkerMeter
    from celery_dlq.store.base import Store


class MetricsAPI:
    """What a dead-letter queue can say in numbers."""

    @property
    def settings(self) -> Settings:
        """The app's settings."""
        raise NotImplementedError

    @property
    def store(self) -> Store:
        """The store, its schema checked."""
        raise NotImplementedError

    @cached_property
    def snapshots(self) -> Snapshots[Reading]:
        """The store's numbers as they were a moment ago."""
        from celery_dlq.metrics.snapshot import Snapshots

        return Snapshots(self.measure, patience_s=2 * self.settings.store_timeout)

    def measure(self) -> Reading:
        """The numbers of the store, and of the spool on this machine.

        :raises StoreError: the store failed.
        """
        from celery_dlq.metrics.reading import Reading

        return Reading(self.store.measures(), self._spool_size())

    def register_metrics(self, registry: Registry | None = None) -> None:
        """Show the store's numbers on a registry of ``prometheus_client``, its default one unless
        another is given; once for each process that is scraped. The store is asked on a thread of its
        own: no scrape waits for it for more than a moment.

        :raises MissingExtra: ``prometheus_client`` is not installed.
        """
        need_prometheus()
        from celery_dlq.metrics.collector import register

        register(self.snapshots, registry)

    @cached_property
    def meter(self) -> WorkerMeter | None:
        """Who counts what this worker does; None when nobody does.

        :raises MissingExtra: ``prometheus_client`` is not installed.
        """
        if not self.settings.worker_metrics:
            return None
        need_prometheus()
        from celery_dlq.metrics.worker import meter_on

        return meter_on(self._spool_size)

    def _spool_size(self) -> int | None:
        try:
            # Not the writer's own, which one thread at a time may use.
            return Spool(self.settings.spool_dir).size()
        except OSError:
            return None
