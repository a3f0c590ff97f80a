"""Exports the store's numbers to a registry of Prometheus, or to a server of their own if no other process is
scraped. A slow store delays a scrape only briefly."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from enum import Enum
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from celery_dlq.errors import ExporterError
from celery_dlq.metrics import families
from celery_dlq.metrics.families import COUNTER, Family, Labels, Sample, by_age, by_size
from celery_dlq.metrics.snapshot import Reading, Snapshot, Snapshots
from celery_dlq.model.states import Reason
from celery_dlq.model.worker import Lost, ReportKind, messages_in
from celery_dlq.store.base import Cell, Measures
from celery_dlq.store.keeping import Keeping, RoundReport

Registry: TypeAlias = CollectorRegistry

#: Seconds for which a scrape waits for a fresh answer. In an event loop, such as Flower's, everything else
#: waits, too.
LOOP_WAIT_S, SERVER_WAIT_S = 0.05, 2.0

_DAY_S = 86_400


class StoreCollector(Collector):
    """Gives a registry the numbers of one store.

    :param wait_s: seconds for which a scrape waits for a fresh answer.
    """

    def __init__(self, snapshots: Snapshots[Reading], *, wait_s: float) -> None:
        self._snapshots, self._wait_s = snapshots, wait_s

    def describe(self) -> Iterable[Metric]:
        """The metrics without samples. Without this method, registering would ask the store."""
        return [family_of(family) for family in families.STORE_FAMILIES]

    def collect(self) -> Iterator[Metric]:
        """The metrics with the latest known numbers."""
        look = self._snapshots.look(self._wait_s)
        if look.up is not None:
            yield single(families.UP, look.up)
        if look.snapshot is not None:
            yield from _samples_of(look.snapshot, self._snapshots.now())


#: The collector on each registry.
_registered: WeakKeyDictionary[Registry, StoreCollector] = WeakKeyDictionary()


def register(
    snapshots: Snapshots[Reading], registry: Registry | None = None, *, wait_s: float = LOOP_WAIT_S
) -> StoreCollector:
    """Export the numbers to ``registry`` (None: the default one). The numbers of an earlier store are
    removed."""
    registry = REGISTRY if registry is None else registry
    before = _registered.pop(registry, None)
    if before is not None:
        registry.unregister(before)
    collector = StoreCollector(snapshots, wait_s=wait_s)
    registry.register(collector)
    _registered[registry] = collector
    return collector


def _samples_of(snapshot: Snapshot[Reading], now: float) -> Iterator[Metric]:
    found, spool = snapshot.value.measures, snapshot.value.spool
    oldest, now = found.oldest_open_at, now + snapshot.value.ahead_s
    moment = datetime.fromtimestamp(now, timezone.utc)
    yield single(families.SNAPSHOT_AT, snapshot.taken_at)
    yield single(families.SNAPSHOT_TOOK, snapshot.took_s)
    yield from _letters(found)
    yield single(families.OLDEST, 0 if oldest is None else max(0.0, now - oldest.timestamp()))
    yield from _redrives(found)
    yield single(families.PARKED, found.parked)
    yield single(families.OVERDUE, found.overdue)
    yield from _unsent(found, now)
    yield single(families.POISON, found.deaths)
    yield _many(families.CIRCUITS, found.circuits)
    yield _many(families.HANDLINGS, found.handlings)
    yield _many(families.TICKETS, found.tickets)
    yield _many(families.AUTO_REDRIVES, dict.fromkeys(found.auto_redrives.items(), 1))
    yield _many(families.AUTO_LETTERS, found.auto_letters)
    yield _many(families.HELD, found.held)
    yield _many(families.ROUTES, found.routes)
    yield from _keeping(snapshot.value.keeping, moment)
    yield from _lost(snapshot.value.lost, moment)
    if spool is not None:
        yield single(families.SPOOL, spool)


def _letters(found: Measures) -> Iterator[Metric]:
    depth = _by(
        found.cells, lambda one: (one.task, one.queue, one.reason.value), lambda one: one.open
    )
    yield _many(families.DEPTH, by_size(depth))
    yield _many(families.LETTERS, found.open)
    arrivals = _by(
        (one for one in found.cells if one.reason is not Reason.UNSENT),
        lambda one: (one.task, one.exception_type, one.reason.value),
        lambda one: one.arrived,
    )
    yield _many(families.ARRIVALS, by_age(arrivals))


def _unsent(found: Measures, now: float) -> Iterator[Metric]:
    yield single(families.UNSENT, sum(one.messages for one in found.unsent))
    # The clock of its sender may be ahead.
    ages = [0.0, *(now - one.since.timestamp() for one in found.unsent)]
    yield single(families.OLDEST_UNSENT, max(ages))
    kept = _by(
        (one for one in found.cells if one.reason is Reason.UNSENT),
        lambda one: (one.task, one.exception_type),
        lambda one: one.arrived,
    )
    yield _many(families.UNSENT_TOTAL, by_age(kept))


def _redrives(found: Measures) -> Iterator[Metric]:
    succeeded = _by(found.cells, lambda one: (one.task, "succeeded"), lambda one: one.succeeded)
    failed = _by(found.cells, lambda one: (one.task, "failed"), lambda one: one.failed)
    yield _many(families.REDRIVES, by_age([*succeeded, *failed]))
    yield _many(families.OPERATIONS, found.operations)
    if found.aborted_at is not None:
        yield single(families.ABORTED_AT, found.aborted_at.timestamp())


def _by(
    cells: Iterable[Cell], labels: Callable[[Cell], Labels], value: Callable[[Cell], int]
) -> list[Sample]:
    return [Sample(labels(one), value(one), one.first_seen_at) for one in cells]


def single(family: Family, value: float) -> Metric:
    """``family`` with its one sample."""
    return _many(family, {(): value})


def _many(family: Family, values: Mapping[Any, float]) -> Metric:
    """``family`` with a sample for each key: the value of its label, or a tuple of values. They are texts, or
    members of an enumeration."""
    metric = family_of(family)
    for labels, value in sorted((_labels_of(key), value) for key, value in values.items()):
        metric.add_metric(labels, float(value))
    return metric


def _labels_of(key: Any) -> Labels:
    values = key if isinstance(key, tuple) else (key,)
    return tuple(str(one.value if isinstance(one, Enum) else one) for one in values)


def family_of(family: Family) -> CounterMetricFamily | GaugeMetricFamily:
    """``family`` without samples."""
    make = CounterMetricFamily if family.kind == COUNTER else GaugeMetricFamily
    return make(family.name, family.text, labels=family.labels)


def _keeping(found: Keeping, now: datetime) -> Iterator[Metric]:
    """The metrics of closed letters and the archive."""
    totals = found.archive
    yield single(families.SEGMENTS, totals.segments)
    yield single(families.ARCHIVED, totals.letters)
    yield single(families.ARCHIVED_BYTES, totals.size)
    if totals.last_at is not None:
        yield single(families.ARCHIVED_AT, totals.last_at.timestamp())
    if found.round is not None:
        yield from _round(found.round, now)
    if found.check is not None:
        yield single(families.VERIFIED_AT, found.check.checked_at.timestamp())
        yield single(families.DAMAGED, found.check.damaged)


def _round(found: RoundReport, now: datetime) -> Iterator[Metric]:
    kept = found.kept
    names = {_age(bound): pile for bound, pile in kept.ages.items()}
    yield _many(families.CLOSED, {name: pile.letters for name, pile in names.items()})
    yield _many(families.CLOSED_BYTES, {name: pile.size for name, pile in names.items()})
    yield _many(families.EXPIRING, {"1d": kept.within_day, "7d": kept.within_week})
    yield single(families.RETENTION_AT, found.ended_at.timestamp())
    yield single(families.RETENTION_LAG, found.lag(now).total_seconds())


def _age(bound: float) -> str:
    return f"{bound / _DAY_S:g}d" if math.isfinite(bound) else "more"


def _lost(found: Lost, now: datetime) -> Iterator[Metric]:
    """The metrics of messages of killed workers, as workers report them to the store."""
    kinds = (ReportKind.STUCK, ReportKind.WAITING)
    yield _many(families.LEFT, {kind: messages_in(found.of(kind)) for kind in kinds})
    yield _many(families.LEFT_AGE, {kind: _age_s(found, kind, now) for kind in kinds})
    yield single(families.UNCOVERED, len(found.of(ReportKind.UNCOVERED)))


def _age_s(found: Lost, kind: ReportKind, now: datetime) -> float:
    ages = [(now - one.since).total_seconds() for one in found.of(kind)]
    # The clock of that machine may be ahead.
    return max(0.0, *ages) if ages else 0.0


@contextlib.contextmanager
def exporting(snapshots: Snapshots[Reading], *, address: str, port: int) -> Iterator[str]:
    """Serve the metrics on a registry of their own; returns their URL.

    :param port: 0 for any free port.
    :raises ExporterError: it cannot listen there.
    """
    registry = CollectorRegistry()
    register(snapshots, registry, wait_s=SERVER_WAIT_S)
    try:
        server, thread = start_http_server(port, addr=address, registry=registry)
    except OSError as error:
        raise ExporterError(
            f"Cannot listen on {address} port {port} ({error.strerror or error}); "
            "choose others with --address and --port."
        ) from error
    host = f"[{address}]" if ":" in address else address
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
