"""What a worker knows of the circuits, and what it tells the others: both once a second, in the background,
so that no message waits for the store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from celery.utils.log import get_logger

from celery_dlq.circuit import Circuit, CircuitChange, Circuits
from celery_dlq.retry import BreakerLimits
from celery_dlq.retry.breaker import failed, still_probed
from celery_dlq.store.base import Store

logger = get_logger(__name__)

T = TypeVar("T")

#: Seconds between two exchanges with the store.
TICK_S = 1.0
#: Circuits whose failures are told in one exchange, and that wait to be told.
AT_ONCE, WAITING = 200, 10_000

#: Task and key.
Name = tuple[str, str]


class Asks(Protocol):
    """What puts a question to the store in the background."""

    def ask(self, question: Callable[[Store], T], answered: Callable[[T | None], object]) -> None:
        """``answered`` gets the answer; None when the store gave none in time."""


@dataclass(frozen=True)
class Known:
    """A circuit that is not closed, by this worker's clock."""

    circuit: Circuit
    #: When a probe may run.
    probe_from: float


class CircuitBoard:
    """The circuits that are not closed, as of the last exchange. While the store is away there are none: all
    count as closed.

    :param asks: the worker's writer.
    """

    def __init__(self, asks: Asks, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._asks, self._monotonic = asks, monotonic
        self._known: Mapping[Name, Known] = {}
        #: Tasks that have one of them.
        self.tasks: frozenset[str] = frozenset()
        self._failures: dict[Name, tuple[int, BreakerLimits]] = {}
        self._probes: dict[Name, str] = {}
        self._lock, self._asking, self._is_blind = threading.Lock(), False, False

    def find(self, name: Name) -> Known | None:
        """The circuit of this task and key, unless it is closed."""
        return self._known.get(name)

    def failed(self, name: Name, limits: BreakerLimits) -> None:
        """A run ended in a transient failure."""
        with self._lock:
            number, _ = self._failures.get(name, (0, limits))
            if number or len(self._failures) < WAITING:
                self._failures[name] = number + 1, limits

    def begin_probe(self, name: Name, probe: str) -> None:
        """``probe`` runs in this worker."""
        with self._lock:
            self._probes[name] = probe

    def end_probe(self, name: Name, probe: str, end: CircuitChange) -> None:
        """It does no longer, and ``end`` says what that means."""
        with self._lock:
            if self._probes.get(name) == probe:
                del self._probes[name]
        self._asks.ask(lambda store: store.change_circuits({name: end}), self._took)

    def learn(self, circuit: Circuit, in_s: float) -> Known:
        """``circuit`` is as it is known now; a probe may run in so many seconds."""
        known = Known(circuit, self._monotonic() + in_s)
        self._show({**self._known, (circuit.task, circuit.key): known})
        return known

    def seconds_until_probe(self, known: Known) -> float:
        """Seconds until a probe of ``known`` may run; 0 when one may."""
        return max(0.0, known.probe_from - self._monotonic())

    def tick(self) -> None:
        """Exchange news with the store, unless the last exchange is still under way."""
        if self._asking:
            return
        self._asking = True
        changes = self._changes()
        self._asks.ask(partial(_exchange, changes), self._exchanged)

    def status(self) -> Mapping[str, Mapping[str, Any]]:
        """The circuits that are not closed, for ``celery inspect stats``."""
        return {
            known.circuit.name: {
                "state": known.circuit.state.value,
                "failures": known.circuit.failures,
                "probes": known.circuit.probes,
            }
            for known in self._known.values()
        }

    def _changes(self) -> dict[Name, CircuitChange]:
        changes: dict[Name, CircuitChange] = {}
        with self._lock:
            for name, probe in self._probes.items():
                changes[name] = partial(still_probed, probe=probe)
            for name in [name for name in self._failures if name not in changes][:AT_ONCE]:
                number, limits = self._failures.pop(name)
                changes[name] = partial(failed, limits=limits, number=number)
            for name in self._probes:
                # They began before the circuit opened.
                self._failures.pop(name, None)
        return changes

    def _exchanged(self, seen: Circuits | None) -> None:
        self._asking = False
        if seen is None:
            self._go_blind()
            return
        if self._is_blind:
            self._is_blind = False
            logger.info("the store says again which circuits are open")
        now = self._monotonic()
        self._show({(c.task, c.key): _known(c, seen, now) for c in seen.circuits})

    def _took(self, changed: tuple[Circuit, ...] | None) -> None:
        if changed is not None:
            self.tick()

    def _go_blind(self) -> None:
        if not self._is_blind:
            self._is_blind = True
            logger.warning("the store does not say which circuits are open: all count as closed")
        self._known, self.tasks = {}, frozenset()

    def _show(self, known: Mapping[Name, Known]) -> None:
        before, self._known = self._known, known
        self.tasks = frozenset(task for task, _ in known)
        for name in known.keys() - before.keys():
            _say_open(known[name].circuit)
        for name in before.keys() - known.keys():
            logger.info("circuit of %s closed: its messages run again", before[name].circuit.name)
        for name in known.keys() & before.keys():
            probes = known[name].circuit.probes
            if probes > before[name].circuit.probes:
                shown = known[name].circuit.name
                logger.warning("circuit of %s still open: probe %d failed", shown, probes)


def _exchange(changes: Mapping[Name, CircuitChange], store: Store) -> Circuits:
    if changes:
        store.change_circuits(changes)
    return store.open_circuits()


def _known(circuit: Circuit, seen: Circuits, now: float) -> Known:
    probe_at = circuit.probe_at or circuit.probe_until or seen.now
    return Known(circuit, now + (probe_at - seen.now).total_seconds())


def _say_open(circuit: Circuit) -> None:
    logger.warning(
        "circuit of %s open: %d transient failures; its messages are parked, and one is tried after "
        "the recovery time", circuit.name, circuit.failures,
    )  # fmt: skip
