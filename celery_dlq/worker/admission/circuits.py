"""A worker's knowledge of the circuits, which it exchanges with the other workers through the store.

The exchange runs in the background, so that no message waits for the store. It takes place once a second, ten
times a second while runs fail, and at once when this worker alone has seen enough failures to open a circuit.
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from celery.utils.log import get_logger

from celery_dlq.model.worker import Circuit, CircuitChange, Circuits
from celery_dlq.retry import BreakerLimits
from celery_dlq.retry.breaker import Counts, counted, failed, still_probed, total, within
from celery_dlq.worker.writing.writer import Writer

if TYPE_CHECKING:
    from celery_dlq.store import Store

logger: logging.Logger = get_logger(__name__)

#: Seconds between two exchanges with the store, usually and while there are failures to report.
TICK_S, TELL_S = 1.0, 0.1
#: The most circuits whose failures are reported in one exchange, and the most that wait to be reported.
AT_ONCE, WAITING = 200, 10_000

#: The most names that the worker shares with the processes of its pool, which count all other circuits as
#: closed.
ROOM = 2_000

_BYTES = 8

#: Task and key.
Name = tuple[str, str]


@dataclass(frozen=True)
class Known:
    """A circuit that is not closed, by this worker's clock."""

    circuit: Circuit
    #: When a probe may run.
    probe_from: float


class CircuitBoard:
    """The circuits that were not closed when the worker last asked the store, and the circuits that it has
    opened since. While the store is away, all circuits count as closed.

    :param writer: puts questions to the store in the background, and answers on its own thread.
    """

    def __init__(self, writer: Writer, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._writer, self._monotonic = writer, monotonic
        self._known: Mapping[Name, Known] = {}
        #: Tasks that have a circuit that is not closed.
        self.tasks: frozenset[str] = frozenset()
        #: Failures that have not been reported yet.
        self._failures: dict[Name, tuple[int, BreakerLimits]] = {}
        #: Failures that this worker itself has seen, reported or not, of circuits that are closed.
        self._seen: dict[Name, tuple[Counts, BreakerLimits]] = {}
        #: Circuits that one more failure opens.
        self._nearly: frozenset[Name] = frozenset()
        #: Circuits that this worker has opened, with the number of failures; the store does not know them
        #: yet.
        self._opened: dict[Name, int] = {}
        #: The open circuits and those nearly open, for the processes of the pool.
        self._shared = SharedNames()
        self._probes: dict[Name, str] = {}
        # Runs end on any thread, and the store answers on the writer's.
        self._lock, self._asking, self._is_blind = threading.RLock(), False, False

    def find(self, name: Name) -> Known | None:
        """The circuit of this task and key, unless it is closed."""
        return self._known.get(name)

    def opens_with(self, find: Callable[[], Name | None], limits: BreakerLimits) -> bool:
        """Whether a circuit is open, or opens with one more failure. For the processes of the pool.

        :param find: returns the circuit's name; called only if it matters.
        """
        if limits.failures <= 1:
            return find() is not None
        if not self._shared:
            return False
        name = find()
        return name is not None and name in self._shared

    def failed(self, name: Name, limits: BreakerLimits) -> None:
        """Note that a run ended in a transient failure. If this worker alone has seen enough of them, the
        circuit opens here at once."""
        with self._lock:
            opens = self._count(name, limits)
            number, _ = self._failures.get(name, (0, limits))
            if opens or number or len(self._failures) < WAITING:
                self._failures[name] = number + 1, limits
            if opens:
                self._open(name, limits)
        if opens:
            self.tick()

    def tell(self) -> None:
        """Exchange news if there are failures to report."""
        if self._failures:
            self.tick()

    def begin_probe(self, name: Name, probe: str) -> None:
        """Note that ``probe`` runs in this worker."""
        with self._lock:
            self._probes[name] = probe

    def end_probe(self, name: Name, probe: str, end: CircuitChange) -> None:
        """Note that ``probe`` has ended, and make the change ``end`` that follows for the circuit."""
        with self._lock:
            if self._probes.get(name) == probe:
                del self._probes[name]
        self._writer.ask(lambda store: store.circuits.change({name: end}), self._took)

    def learn(self, circuit: Circuit, in_s: float) -> Known:
        """Note the state of ``circuit``, which the store has just reported; a probe may run in ``in_s``
        seconds."""
        known = Known(circuit, self._monotonic() + in_s)
        with self._lock:
            self._show({**self._known, (circuit.task, circuit.key): known})
        return known

    def seconds_until_probe(self, known: Known) -> float:
        """Seconds until a probe of ``known`` may run; 0 when one may."""
        return max(0.0, known.probe_from - self._monotonic())

    def tick(self) -> None:
        """Exchange news with the store, unless the last exchange is still under way."""
        with self._lock:
            if self._asking:
                return
            self._asking = True
            self._forget_old()
            changes = self._changes()
            told = frozenset(self._opened.keys() & changes.keys())
        self._writer.ask(partial(_exchange, changes), partial(self._exchanged, told))

    def status(self) -> Mapping[str, Mapping[str, Any]]:
        """The circuits that are not closed, for ``celery inspect stats``."""
        circuits = [known.circuit for known in self._known.values()]
        return {circuit.name: circuit.shown(messages="parked") for circuit in circuits}

    def _count(self, name: Name, limits: BreakerLimits) -> bool:
        """Count a failure that this worker has seen; returns whether it opens the circuit."""
        if self._is_blind or name in self._known:
            return False
        recent, _ = self._seen.pop(name, ((), limits))
        recent = counted(recent, self._monotonic(), limits.window_s)
        self._seen[name] = recent, limits
        if len(self._seen) > WAITING:
            del self._seen[next(iter(self._seen))]  # the one that has not failed for longest
        seen = total(recent)
        if seen >= limits.failures - 1:
            self._nearly |= {name}
            self._share()
        return seen >= limits.failures

    def _open(self, name: Name, limits: BreakerLimits) -> None:
        seen = self._opened[name] = total(self._seen[name][0])
        now = datetime.now(timezone.utc)
        circuit = failed(Circuit(task=name[0], key=name[1]), now, limits, seen)
        self.learn(circuit, limits.recovery_s)

    def _forget_old(self) -> None:
        now = self._monotonic()
        kept = {
            name: (recent, limits)
            for name, (before, limits) in self._seen.items()
            if (recent := within(before, now, limits.window_s))
        }
        self._seen = kept
        self._nearly = frozenset(
            name for name, (recent, limits) in kept.items() if total(recent) >= limits.failures - 1
        )
        self._share()

    def _share(self) -> None:
        self._shared.write(self._known.keys() | self._nearly)

    def _changes(self) -> dict[Name, CircuitChange]:
        changes: dict[Name, CircuitChange] = {}
        for name, probe in self._probes.items():
            changes[name] = partial(still_probed, probe=probe)
            # They began before the circuit opened.
            self._failures.pop(name, None)
        # First the circuits that other workers do not know to be open.
        waiting = dict.fromkeys([*self._opened.keys() & self._failures.keys(), *self._failures])
        for name in islice(waiting, AT_ONCE):
            number, limits = self._failures.pop(name)
            seen = self._opened.get(name, 0)
            changes[name] = partial(failed, limits=limits, number=number, seen=seen)
        return changes

    def _exchanged(self, told: frozenset[Name], seen: Circuits | None) -> None:
        with self._lock:
            self._asking = False
            for name in told:
                self._opened.pop(name, None)
            if seen is None:
                self._go_blind()
                return
            if self._is_blind:
                self._is_blind = False
                logger.debug("the store says again which circuits are open")
            now = self._monotonic()
            # The store was asked before it knew of these.
            own = {name: self._known[name] for name in self._opened if name in self._known}
            self._show({**own, **{(c.task, c.key): _known(c, seen, now) for c in seen.circuits}})
        if own:
            self.tick()

    def _took(self, changed: tuple[Circuit, ...] | None) -> None:
        if changed is not None:
            self.tick()

    def _go_blind(self) -> None:
        if not self._is_blind:
            self._is_blind = True
            # Only for debugging, because StoreHealth logs that the store fails.
            logger.debug("the store does not say which circuits are open: all count as closed")
        self._known, self.tasks = {}, frozenset()
        self._opened.clear()
        self._share()

    def _show(self, known: Mapping[Name, Known]) -> None:
        before, self._known = self._known, known
        self.tasks = frozenset(task for task, _ in known)
        for name in known:
            self._seen.pop(name, None)  # when it closes, failures count from zero
        self._nearly -= known.keys()
        self._share()
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
        store.circuits.change(changes)
    return store.circuits.read_open()


def _known(circuit: Circuit, seen: Circuits, now: float) -> Known:
    probe_at = circuit.probe_at or circuit.probe_until or seen.now
    return Known(circuit, now + (probe_at - seen.now).total_seconds())


def _say_open(circuit: Circuit) -> None:
    logger.warning(
        "circuit of %s open: %d transient failures; its messages are parked, and one is tried after "
        "the recovery time", circuit.name, circuit.failures,
    )  # fmt: skip


class SharedNames:
    """Names of circuits, kept as numbers in memory that forked processes share.

    Reading takes no lock, because a process that is killed must not keep others waiting. So a reader may see
    some old and some new names while they are written. Create the object before the processes are forked.
    """

    def __init__(self) -> None:
        self._numbers = memoryview(mmap.mmap(-1, _BYTES * (1 + ROOM))).cast("Q")
        self._written: frozenset[Name] = frozenset()

    def write(self, names: Iterable[Name]) -> None:
        """Replace the set by ``names``."""
        wanted = frozenset(names)
        if wanted == self._written:
            return
        self._written = wanted
        numbers = [_number(name) for name in islice(wanted, ROOM)]
        for place, number in enumerate(numbers, start=1):
            self._numbers[place] = number
        self._numbers[0] = len(numbers)

    def __bool__(self) -> bool:
        return self._numbers[0] > 0

    def __contains__(self, name: Name) -> bool:
        return _number(name) in self._numbers[1 : 1 + self._numbers[0]].tolist()


def _number(name: Name) -> int:
    text = "\0".join(name).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=_BYTES).digest(), "big")
