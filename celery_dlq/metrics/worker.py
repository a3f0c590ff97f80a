"""The counters of a worker's parent process, on the default registry of ``prometheus_client``, which
the worker serves."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, Counter, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from celery_dlq.base.redact import safe_text
from celery_dlq.classify import WITHOUT_A_RULE
from celery_dlq.metrics import families
from celery_dlq.metrics.collector import Registry, family_of, single
from celery_dlq.metrics.families import MOST_SETS, NONE, OTHER, Family, Labels
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import State

T = TypeVar("T")

#: The calls of a store that are measured.
WRITES = frozenset({"save", "park", "record_outcomes"})
#: The roles of a store that have these calls.
ROLES = frozenset({"letters", "parked"})

logger: logging.Logger = logging.getLogger(__name__)

#: Bounds in seconds: a commit takes milliseconds; after twice ``dlq_store_timeout`` letters go to the
#: spool.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)


class WorkerMeter:
    """The metrics of a worker. Nothing here raises: a failure to count must not stop the work.

    :param spool_size: bytes in the spool; None if it cannot be read.
    :param recording: the numbers of the flight recorder; None if its files cannot be read.
    :param stalled: how many workers in this process are stalled.
    """

    def __init__(
        self,
        spool_size: Callable[[], int | None],
        recording: Callable[[], Recording | None],
        stalled: Callable[[], int],
        registry: Registry = REGISTRY,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._letters = _Counted(Counter, families.DEAD_LETTERS, registry)
        self._unknown = _Counted(Counter, families.UNKNOWN, registry)
        self._retries = _Counted(Counter, families.RETRIES, registry)
        self._recovered = _Counted(Counter, families.RECOVERED, registry)
        self._capture = _histogram(families.CAPTURE, registry)
        self._store = _histogram(families.STORE, registry)
        again = families.SENT_AGAIN
        self._sent_again = Counter(again.name, again.text, registry=registry)
        registry.register(_AtScrape(lambda: [spool_size()], families.WORKER_SPOOL))
        registry.register(
            _AtScrape(
                recording, families.RECORDED, families.UNRECORDED, families.UNRECOVERED,
                families.UNRECOVERED_AGE,
            )
        )  # fmt: skip
        registry.register(_AtScrape(lambda: [stalled()], families.STALLED))

    def dead_lettered(self, letter: DeadLetter, safe: Callable[[], object]) -> Callable[[], object]:
        """Count ``letter``, unless it only waits for its next attempt."""
        if letter.state is State.PARKED:
            return safe
        began = self._monotonic()

        def counted() -> object:
            self._note(lambda: self._capture.observe(self._monotonic() - began))
            return safe()

        self._note(
            lambda: self._letters.add(letter.task, letter.exception_type, letter.reason.value)
        )
        rule = letter.explanation.rule
        if rule in WITHOUT_A_RULE:
            self._note(lambda: self._unknown.add(letter.exception_type, rule))
        return counted

    def retried(self, task: str, rule: str) -> None:
        """Count a retry."""
        self._note(lambda: self._retries.add(task, rule))

    def recovered(self, *, letters: int, ended: int) -> None:
        """Count messages of killed workers."""
        if letters:
            self._note(lambda: self._recovered.add("letter", count=letters))
        if ended:
            self._note(lambda: self._recovered.add("ended", count=ended))

    def sent_again(self, number: int) -> None:
        """Count vanished messages of redrives that were sent again."""
        self._note(lambda: self._sent_again.inc(number))

    def timed(self, writes: T) -> T:
        """``writes`` (a store, or a saver process), with each write measured."""

        def observe(call: str, seconds: float) -> None:
            self._note(lambda: self._store.labels(call).observe(seconds))

        return cast(T, _Timed(writes, observe))

    def _note(self, count: Callable[[], object]) -> None:
        try:
            count()
        except Exception:
            # With PROMETHEUS_MULTIPROC_DIR on a full disk, for example.
            logger.exception("a metric could not be counted")


class Recording(NamedTuple):
    """The numbers of the flight recorder."""

    #: Messages that this process has copied, and messages that it could not copy.
    recorded: int
    unrecorded: int
    #: Messages of killed workers on this machine that wait for recovery.
    unrecovered: int
    #: Seconds since the oldest files were changed with such messages that the broker has forgotten.
    age_s: float


class _AtScrape(Collector):
    """Reads numbers at each scrape, unless they cannot be read. A gauge with a function would show 0 if the
    numbers of several processes are combined."""

    def __init__(self, read: Callable[[], Sequence[float | None] | None], *shown: Family) -> None:
        self._read, self._shown = read, shown

    def describe(self) -> Iterable[Metric]:
        return map(family_of, self._shown)

    def collect(self) -> Iterator[Metric]:
        for family, value in zip(self._shown, self._read() or (), strict=False):
            if value is not None:
                yield single(family, value)


class _Counted:
    """A counter with a limited number of sets of labels: the first ones keep their labels."""

    def __init__(self, make: type[Counter], family: Family, registry: Registry) -> None:
        self._counter = make(family.name, family.text, family.labels, registry=registry)
        self._known: set[Labels] = set()
        self._rest = (OTHER,) * len(family.labels)
        self._adding = threading.Lock()

    def add(self, *labels: str, count: int = 1) -> None:
        key = tuple(safe_text(label) or NONE for label in labels)
        with self._adding:
            if key not in self._known and len(self._known) >= MOST_SETS:
                key = self._rest
            else:
                self._known.add(key)
        self._counter.labels(*key).inc(count)


class _Timed:
    """Wraps a store, one of its roles, or a saver process, and measures their writes."""

    def __init__(self, writes: Any, observe: Callable[[str, float], None]) -> None:
        self._writes, self._observe = writes, observe

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._writes, name)
        if name in ROLES:
            return _Timed(value, self._observe)
        return functools.partial(self._measured, name, value) if name in WRITES else value

    def _measured(self, name: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        began = time.monotonic()
        try:
            return call(*args, **kwargs)
        finally:
            self._observe(name, time.monotonic() - began)


def _histogram(family: Family, registry: Registry) -> Histogram:
    return Histogram(family.name, family.text, family.labels, registry=registry, buckets=BUCKETS)


#: The meter on each registry. All apps of a process share it.
_meters: WeakKeyDictionary[Registry, WorkerMeter] = WeakKeyDictionary()


def meter_on(
    spool_size: Callable[[], int | None],
    recording: Callable[[], Recording | None],
    stalled: Callable[[], int],
    registry: Registry = REGISTRY,
) -> WorkerMeter:
    """The meter on ``registry``, made on first use."""
    meter = _meters.get(registry)
    if meter is None:
        meter = _meters[registry] = WorkerMeter(spool_size, recording, stalled, registry)
    return meter
