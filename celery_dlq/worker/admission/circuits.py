"""A worker's knowledge of the circuits: those that all workers share through the store, and those that it
opens by itself and for itself.

The exchange with the store runs in the background, so that no message waits for the store. It takes place
once a second, ten times a second while runs fail, and at once when this worker alone has seen enough failures
to open a circuit. All times here are by this process's monotonic clock, which is never set back.
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from celery.utils.log import get_logger

from celery_dlq.model.states import Verdict
from celery_dlq.model.worker import Circuit, CircuitChange, Circuits, CircuitState
from celery_dlq.retry import breaker
from celery_dlq.retry.breaker import BreakerLimits, Counts, probe_ended
from celery_dlq.worker.options import CircuitName
from celery_dlq.worker.writing.writer import Writer

if TYPE_CHECKING:
    from celery_dlq.store import Store

logger: logging.Logger = get_logger(__name__)

#: The most circuits whose failures are reported in one exchange, and the most whose failures are remembered.
AT_ONCE, WAITING = 200, 10_000

#: The most names that the worker shares with the processes of its pool, which count all other circuits as
#: closed.
ROOM = 2_000

_BYTES = 8

#: Says what the time is.
Clock = Callable[[], float]


class OwnCircuits:
    """The circuits that this worker opens by itself and for itself, without the store: a task has failed
    ``limits.failures`` times within the window, and has not succeeded since. Safe to call from any thread.

    :param limits: by task; any other task has no such circuit.
    """

    def __init__(self, limits: Mapping[str, BreakerLimits], monotonic: Clock) -> None:
        self.limits: Mapping[str, BreakerLimits] = limits
        self._monotonic = monotonic
        #: Those of tasks that have failed since their last success.
        self.known: dict[str, Circuit] = {}
        self._lock = threading.Lock()

    def failed(self, task: str) -> None:
        """Note that a run of ``task`` has failed: its message is a letter, or retried."""
        limits = self.limits.get(task)
        if limits is None:
            return

        def after(circuit: Circuit, now: datetime) -> Circuit:
            if circuit.state is CircuitState.HALF_OPEN:
                return probe_ended(circuit, now, circuit.probe, Verdict.TRANSIENT, limits)
            return breaker.failed(circuit, now, limits)

        self._change(task, after)

    def succeeded(self, task: str) -> None:
        """Note that a message of ``task`` has succeeded."""
        if task in self.known:  # as in hardly any call
            self._change(task, lambda circuit, _: Circuit(task=circuit.task))

    def state_of(self, task: str) -> CircuitState:
        """The state of the circuit of ``task``. Its messages are held unless it is closed."""
        circuit = self.known.get(task)
        return CircuitState.CLOSED if circuit is None else circuit.state

    def take_probe(self, task: str, probe: str) -> bool:
        """Whether the message ``probe`` of ``task`` is to be tried now; if so, no other one until it has
        ended."""
        # While one is half open, the valve sees the end of the probe.
        return (
            self.state_of(task) is CircuitState.OPEN
            and self._change(task, partial(breaker.probed, probe=probe)).probe == probe
        )

    def probe_ended(self, task: str, probe: str) -> None:
        """Note that ``probe`` is over. If it neither succeeded nor failed, for example because it raised
        ``Ignore``, or was parked, another one follows after the same time."""

        def after(circuit: Circuit, now: datetime) -> Circuit:
            wait_s = limits.recovery_after(circuit.probes)
            return probe_ended(circuit, now, probe, None, limits, wait_s=wait_s)

        limits = self.limits[task]
        self._change(task, after)

    def _change(self, task: str, change: CircuitChange) -> Circuit:
        with self._lock:
            before, now = self.known.get(task, Circuit(task=task)), _moment(self._monotonic())
            self.known[task] = after = change(before, now)
            if after == Circuit(task=task):
                del self.known[task]
        _log_change(before, after, now, " in this worker", "failed runs and no success", "held")
        return after


@dataclass
class _Seen:
    """The failures of a circuit that this worker itself has seen."""

    limits: BreakerLimits
    #: While it is closed: the failures within the window, reported or not.
    recent: Counts = ()
    #: Failures that have not been reported yet.
    untold: int = 0
    #: The failures with which this worker has opened it; 0 once the store knows that it is open.
    opened: int = 0


class SharedCircuits:
    """The circuits that were not closed when the worker last asked the store, and the circuits that it has
    opened since. While the store is away, all circuits count as closed.

    :param writer: puts questions to the store in the background, and answers on its own thread.
    """

    def __init__(self, writer: Writer, monotonic: Clock) -> None:
        self._writer, self._monotonic = writer, monotonic
        #: The circuits that are not closed; ``probe_at`` says when a probe may run, in any state.
        self.known: Mapping[CircuitName, Circuit] = {}
        #: Tasks that have a circuit that is not closed.
        self.tasks: frozenset[str] = frozenset()
        #: The probes that run in this worker.
        self.probes: dict[CircuitName, str] = {}
        #: The open circuits, and those that one more failure opens, for the processes of the pool.
        self.names: SharedNames = SharedNames()
        self._nearly: set[CircuitName] = set()
        #: The circuits that failed last at the end.
        self._seen: dict[CircuitName, _Seen] = {}
        self._has_news = False
        # Runs end on any thread, and the store answers on the writer's.
        self._lock, self._asking, self._is_blind = threading.RLock(), False, False

    def failed(self, name: CircuitName, limits: BreakerLimits) -> None:
        """Note that a run ended in a transient failure. If this worker alone has seen enough of them, the
        circuit opens here at once."""
        with self._lock:
            seen = self._seen[name] = self._seen.pop(name, _Seen(limits))
            seen.limits, seen.untold, self._has_news = limits, seen.untold + 1, True
            if len(self._seen) > WAITING:
                del self._seen[next(iter(self._seen))]
            opens = not self._is_blind and name not in self.known and self._opens(name, seen)
        if opens:
            self.tick()

    def tell(self) -> None:
        """Exchange news if there are failures to report."""
        if self._has_news:
            self.tick()

    def end_probe(
        self, name: CircuitName, probe: str, verdict: Verdict | None, limits: BreakerLimits
    ) -> None:
        """Note that ``probe`` has ended; see :func:`~celery_dlq.retry.breaker.probe_ended`."""
        if self.probes.get(name) == probe:
            self.probes.pop(name, None)
        end = partial(probe_ended, probe=probe, verdict=verdict, limits=limits)
        self._writer.ask(
            lambda store: store.circuits.change({name: end}),
            lambda changed: None if changed is None else self.tick(),
        )

    def learn(self, circuit: Circuit, in_s: float) -> Circuit:
        """Note the state of ``circuit``, which the store has just reported; a probe may run in ``in_s``
        seconds."""
        known = replace(circuit, probe_at=_moment(self._monotonic() + in_s))
        with self._lock:
            self._show({**self.known, (circuit.task, circuit.key): known})
        return known

    def seconds_until_probe(self, circuit: Circuit) -> float:
        """Seconds until a probe of ``circuit`` may run; 0 when one may."""
        return _seconds_until_probe(circuit, _moment(self._monotonic()))

    def tick(self) -> None:
        """Exchange news with the store, unless the last exchange is still under way."""

        def exchange(store: Store) -> Circuits:
            if changes:
                store.circuits.change(changes)
            return store.circuits.read_open()

        with self._lock:
            if self._asking:
                return
            self._asking = True
            self._forget_old()
            changes = self._changes()
            told = frozenset(filter(self._has_opened, changes))
        self._writer.ask(exchange, partial(self._exchanged, told))

    def _opens(self, name: CircuitName, seen: _Seen) -> bool:
        """Count a failure that this worker has seen; returns whether it opens the circuit, and opens it."""
        limits, now = seen.limits, self._monotonic()
        seen.recent = breaker.counted(seen.recent, now, limits.window_s)
        failures = breaker.total(seen.recent)
        if failures >= limits.failures - 1:
            self._nearly.add(name)
            self._share()
        if failures < limits.failures:
            return False
        seen.opened, closed = failures, Circuit(task=name[0], key=name[1])
        self.learn(breaker.failed(closed, _moment(now), limits, failures), limits.recovery_s)
        return True

    def _forget_old(self) -> None:
        now = self._monotonic()
        for name, seen in [*self._seen.items()]:
            seen.recent = breaker.within(seen.recent, now, seen.limits.window_s)
            if breaker.total(seen.recent) < seen.limits.failures - 1:
                self._nearly.discard(name)
            if not (seen.recent or seen.untold or seen.opened):
                del self._seen[name]
        self._nearly &= self._seen.keys()
        self._share()

    def _share(self) -> None:
        self.names.write(self.known.keys() | self._nearly)

    def _changes(self) -> dict[CircuitName, CircuitChange]:
        changes: dict[CircuitName, CircuitChange] = {}
        for name, probe in [*self.probes.items()]:
            changes[name] = partial(breaker.still_probed, probe=probe)
            if name in self._seen:  # these runs began before the circuit opened
                self._seen[name].untold = 0
        untold = [(name, seen) for name, seen in self._seen.items() if seen.untold]
        # First the circuits that other workers do not know to be open.
        untold.sort(key=lambda item: not item[1].opened)
        self._has_news = len(untold) > AT_ONCE
        for name, seen in untold[:AT_ONCE]:
            number, seen.untold = seen.untold, 0
            changes[name] = partial(
                breaker.failed, limits=seen.limits, number=number, seen=seen.opened
            )
        return changes

    def _exchanged(self, told: frozenset[CircuitName], found: Circuits | None) -> None:
        with self._lock:
            self._asking, was_blind, self._is_blind = False, self._is_blind, found is None
            for name in self._seen if found is None else self._seen.keys() & told:
                self._seen[name].opened = 0
            if found is None:
                if not was_blind:
                    # Only for debugging, because StoreHealth logs that the store fails.
                    logger.debug(
                        "the store does not say which circuits are open: all count as closed"
                    )
                self.known, self.tasks = {}, frozenset()
                self._share()
                return
            # The store was asked before it knew of these.
            own = {name: one for name, one in self.known.items() if self._has_opened(name)}
            shift = _moment(self._monotonic()) - found.now
            others = {
                (one.task, one.key): replace(
                    one, probe_at=(one.probe_at or one.probe_until or found.now) + shift
                )
                for one in found.circuits
            }
            self._show({**own, **others})
        if own:
            self.tick()

    def _has_opened(self, name: CircuitName) -> bool:
        return name in self._seen and self._seen[name].opened > 0

    def _show(self, known: Mapping[CircuitName, Circuit]) -> None:
        before, self.known = self.known, known
        self.tasks = frozenset(task for task, _ in known)
        for name in known.keys() & self._seen.keys():
            self._seen[name].recent = ()  # when it closes, failures count from zero
        self._nearly -= known.keys()
        self._share()
        now = _moment(self._monotonic())
        for name in {**known, **before}:
            closed = Circuit(task=name[0], key=name[1])
            after = known.get(name, closed)
            _log_change(before.get(name, closed), after, now, "", "transient failures", "parked")


def _moment(monotonic: float) -> datetime:
    return datetime.fromtimestamp(monotonic, timezone.utc)


def _seconds_until_probe(circuit: Circuit, now: datetime) -> float:
    return max(0.0, ((circuit.probe_at or now) - now).total_seconds())


def _log_change(
    before: Circuit, after: Circuit, now: datetime, where: str, failures: str, messages: str
) -> None:
    name, wait_s = after.name, _seconds_until_probe(after, now)
    if after.state is CircuitState.CLOSED:
        if before.state is not CircuitState.CLOSED:
            logger.info("circuit of %s closed%s: its messages run again", name, where)
    elif before.state is CircuitState.CLOSED:
        logger.warning(
            "circuit of %s open%s: %d %s; its messages are %s, and one is tried in %.0f s",
            name, where, after.failures, failures, messages, wait_s,
        )  # fmt: skip
    elif after.probes > before.probes:
        logger.warning(
            "circuit of %s still open%s: probe %d failed, the next is in %.0f s",
            name, where, after.probes, wait_s,
        )  # fmt: skip


class SharedNames:
    """Names of circuits, kept as numbers in memory that forked processes share.

    Reading takes no lock, because a process that is killed must not keep others waiting. So a reader may see
    some old and some new names while they are written. Create the object before the processes are forked.
    """

    def __init__(self) -> None:
        self._numbers = memoryview(mmap.mmap(-1, _BYTES * (1 + ROOM))).cast("Q")
        self._written: frozenset[CircuitName] = frozenset()

    def write(self, names: Iterable[CircuitName]) -> None:
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

    def __contains__(self, name: CircuitName) -> bool:
        return _number(name) in self._numbers[1 : 1 + self._numbers[0]].tolist()


def _number(name: CircuitName) -> int:
    text = "\0".join(name).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=_BYTES).digest(), "big")
