"""A guard that holds messages back while running them would only make dead letters: those of a task that this
worker has only seen fail, and all messages while the writer is full."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import Any

from celery.utils.log import get_logger
from celery.worker import state

from celery_dlq.model.letter import DeadLetter, Outcome
from celery_dlq.model.states import Reason
from celery_dlq.model.worker import Circuit, CircuitState
from celery_dlq.retry import BreakerLimits
from celery_dlq.retry.breaker import failed, probe_failed, probe_was_inconclusive, probed
from celery_dlq.worker.admission import ConsumerGuard, Onward, watch_end
from celery_dlq.worker.admission.circuit_options import STREAK, limits_of
from celery_dlq.worker.body.report import reported
from celery_dlq.worker.request.request import DLQRequest

logger: logging.Logger = get_logger(__name__)

#: Seconds between looks at the held messages.
TICK_S = 0.25
#: The prefetch limit is raised for this many held messages, and for this many bytes of them, so that the
#: messages of other tasks that follow them in the queue are still delivered.
SPARE, SPARE_BYTES = 1_000, 64 * 1024 * 1024
#: Seconds after which a held message goes back to the broker, before RabbitMQ closes its consumer.
HOLD_S = 600.0

#: Deaths that say something about the task as it is deployed. With the other reasons, the task did not run.
OF_A_RUN = frozenset(
    {Reason.TERMINAL, Reason.EXHAUSTED, Reason.BUDGET, Reason.TIMEOUT, Reason.POISON, Reason.REJECTED,
     Reason.UNSTORED}
)  # fmt: skip


class OwnCircuits:
    """The circuits that this worker opens by itself and for itself, without the store: a task has failed
    ``limits.failures`` times within the window, and has not succeeded since. Safe to call from any thread.

    Their times are this process's monotonic clock, which is never set back.

    :param limits: by task; any other task has no such circuit.
    """

    def __init__(
        self, limits: Mapping[str, BreakerLimits], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits
        self._monotonic = monotonic
        #: Tasks that have failed since their last success.
        self._circuits: dict[str, Circuit] = {}
        self._lock = threading.Lock()

    def failed(self, task: str) -> None:
        """Note that a run of ``task`` has failed: its message is a letter, or retried."""
        limits = self.limits.get(task)
        if limits is None:
            return
        with self._lock:
            before, now = self._circuits.get(task, Circuit(task=task)), self._now()
            if before.state is CircuitState.HALF_OPEN:
                after = probe_failed(before, now, before.probe, limits)
            else:
                after = failed(before, now, limits)
            self._circuits[task] = after
        if after.state is not before.state:
            _log_open(after, now)

    def succeeded(self, task: str) -> None:
        """Note that a message of ``task`` has succeeded."""
        if task not in self._circuits:  # as in nearly every call
            return
        with self._lock:
            before = self._circuits.pop(task, None)
        if before is not None and before.state is not CircuitState.CLOSED:
            logger.info("circuit of %s closed in this worker: its messages run again", task)

    def is_open(self, task: str) -> bool:
        """Whether messages of ``task`` are to be held."""
        circuit = self._circuits.get(task)
        return circuit is not None and circuit.state is not CircuitState.CLOSED

    def take_probe(self, task: str, probe: str) -> bool:
        """Whether the message ``probe`` of ``task`` is to be tried now; if so, no other one until it has
        ended."""
        with self._lock:
            before = self._circuits.get(task)
            # While one is half open, the gate sees the end of the probe.
            if before is None or before.state is not CircuitState.OPEN:
                return False
            self._circuits[task] = after = probed(before, self._now(), probe)
            return after.state is CircuitState.HALF_OPEN

    def probe_ended(self, task: str, probe: str) -> None:
        """Note that ``probe`` is over. If it neither succeeded nor failed, for example because it raised
        ``Ignore``, or was parked, another one follows after the same time."""
        with self._lock:
            before = self._circuits.get(task)
            if before is not None:
                wait_s = self.limits[task].recovery_after(before.probes)
                after = probe_was_inconclusive(before, self._now(), probe, wait_s)
                self._circuits[task] = after

    def status(self) -> Mapping[str, Mapping[str, Any]]:
        """The circuits that are not closed, for ``celery inspect stats``."""
        with self._lock:
            circuits = tuple(self._circuits.values())
        return {
            circuit.name: circuit.shown(messages="held")
            for circuit in circuits
            if circuit.state is not CircuitState.CLOSED
        }

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._monotonic(), timezone.utc)


def _log_open(circuit: Circuit, now: datetime) -> None:
    wait_s = (circuit.probe_at - now).total_seconds() if circuit.probe_at else 0.0
    if circuit.probes:
        logger.warning(
            "circuit of %s still open in this worker: probe %d failed, the next is in %.0f s",
            circuit.task, circuit.probes, wait_s,
        )  # fmt: skip
    else:
        logger.warning(
            "circuit of %s open in this worker: %d failed runs and no success; its messages are held, and "
            "one is tried in %.0f s",
            circuit.task, circuit.failures, wait_s,
        )  # fmt: skip


@dataclass(frozen=True)
class _Held:
    request: Any
    since: float
    #: How far the prefetch limit was raised for it.
    raised: int
    size: int


class Gate(ConsumerGuard):
    """Holds a request while this worker has opened the circuit of its task, or while too many letters wait
    for the writer.

    A held message is unacknowledged, like one that waits for Celery's own rate limit. So nothing is
    lost or doubled: a warm shutdown, a lost connection or a crash gives it back to the broker.

    :param is_full: whether the writer holds as many letters as it may.
    """

    def __init__(
        self, is_full: Callable[[], bool], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._is_full, self._monotonic = is_full, monotonic
        self._hold_at_most_s = HOLD_S
        self.circuits: OwnCircuits = OwnCircuits({})
        self._held: list[_Held] = []
        self._probes: dict[str, Any] = {}
        # Without an event loop Celery runs its timers on a thread.
        self._lock = threading.Lock()

    def join(self, consumer: Any, onward: Onward) -> bool:
        """Every message has to pass: the writer may be full at any time."""
        super().join(consumer, onward)
        tasks = consumer.app.tasks.values()
        limits = {str(task.name): found for task in tasks if (found := limits_of(task, STREAK))}
        self.circuits = OwnCircuits(limits, self._monotonic)
        return True

    def admits(self, request: Any) -> bool:
        """Whether the task of ``request`` may run. If not, the request is held."""
        return (not self.circuits.limits and not self._is_full()) or not self._holds(request)

    def start(self) -> None:
        """The broker is connected."""
        channel = self._consumer.connection.default_channel
        visible_after_s = getattr(channel, "visibility_timeout", None)
        if visible_after_s:
            # Half of it, because some seconds had passed before the message came here.
            self._hold_at_most_s = min(HOLD_S, float(visible_after_s) / 2)
        self._repeat((TICK_S, self.tick))

    def stop(self) -> None:
        """The connection is lost, or about to be closed. The broker delivers the held messages again. Probes
        stay: one that runs may end well, and for one that is forgotten the next tick allows another."""
        super().stop()
        with self._lock:
            self._held.clear()

    def make_room(self, then: Callable[[], object]) -> Callable[[], object]:
        """``then``, until which one more message may be delivered. It settles a message that waits for the
        writer. To be called in the event loop, where Celery counts without a lock."""
        if self._is_full():
            return then
        # After a lost connection there is another one.
        qos = self._consumer.qos
        raised = self._raised(qos)

        def settle() -> object:
            qos.decrement_eventually(raised)
            return then()

        return settle

    def note(self, record: DeadLetter | Outcome) -> None:
        """``record`` is about to be written."""
        if isinstance(record, DeadLetter) and record.reason in OF_A_RUN:
            self._count(self.circuits.failed, record.task)

    def tick(self) -> None:
        """Let go of the requests that may run, and give back those that have waited too long."""
        if self._consumer.connection is None:  # lost: the broker delivers the messages again
            return
        try:
            self._look_after_probes()
            for held in self._freed():
                self._let_go(held)
        except Exception:
            logger.exception("celery_dlq could not look after held messages")

    def status(self) -> Mapping[str, Any]:
        """The number of held messages, for ``celery inspect stats``."""
        return {"held": len(self._held), "writer_full": self._is_full()}

    def _holds(self, request: Any) -> bool:
        try:
            if not isinstance(request, DLQRequest):
                return False
            if request.type in self.circuits.limits:
                watch_end(request, partial(self._on_end, request.type))
            if not (self.circuits.is_open(request.type) or self._is_full()):
                return False
            self._hold(request)
        except Exception:
            logger.exception("celery_dlq could not hold %s", request)
            return False
        return True

    def _hold(self, request: Any) -> None:
        size = len(request.body) if isinstance(request.body, (bytes, str)) else 0
        with self._lock:
            raised = self._raise_prefetch(size) if not self._is_full() else 0
            self._held.append(_Held(request, self._monotonic(), raised, size))

    def _raise_prefetch(self, size: int) -> int:
        if sum(held.raised for held in self._held) >= SPARE:
            return 0
        if size + sum(held.size for held in self._held) > SPARE_BYTES:
            return 0
        return self._raised(self._consumer.qos)

    def _raised(self, qos: Any) -> int:
        before = qos.value
        return int(qos.increment_eventually() - before)

    def _on_end(self, task: str, result: tuple[Any, Any, Any]) -> None:
        has_failed, einfo, _runtime = result
        if not has_failed:
            self._count(self.circuits.succeeded, task)
        elif reported(einfo).for_error:
            self._count(self.circuits.failed, task)

    def _count(self, event: Callable[[str], None], task: str) -> None:
        try:
            event(task)
        except Exception:
            logger.exception("celery_dlq could not count a run of %s", task)

    def _look_after_probes(self) -> None:
        for task, request in list(self._probes.items()):
            # Compared by identity: its retry may be here already, under the same id.
            if request not in state.reserved_requests:
                del self._probes[task]
                self.circuits.probe_ended(task, request.id)

    def _freed(self) -> list[tuple[_Held, Callable[[Any], object]]]:
        """The requests that are no longer held, each with the function that gets it next."""
        now, full = self._monotonic(), self._is_full()
        freed: list[tuple[_Held, Callable[[Any], object]]] = []
        kept: list[_Held] = []
        with self._lock:
            for held in self._held:
                if not full and self._may_go(held.request):
                    freed.append((held, self._onward))
                elif now - held.since > self._hold_at_most_s:
                    freed.append((held, _give_back))
                else:
                    kept.append(held)
            self._held[:] = kept
        return freed

    def _may_go(self, request: Any) -> bool:
        task = request.type
        if not self.circuits.is_open(task):
            return True
        if request.id in state.revoked or request.maybe_expire():
            return True  # Celery drops it
        if not self.circuits.take_probe(task, request.id):
            return False
        self._probes[task] = request
        return True

    def _let_go(self, freed: tuple[_Held, Callable[[Any], object]]) -> None:
        held, act = freed
        try:
            if held.raised:
                self._consumer.qos.decrement_eventually(held.raised)
            act(held.request)
        except Exception:
            logger.exception("celery_dlq could not let go of %s", held.request)


def _give_back(request: Any) -> None:
    request.reject(requeue=True)
    state.task_ready(request)
