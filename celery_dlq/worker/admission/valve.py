"""A guard that keeps messages from the pool while running them would only make dead letters.

It parks messages while a circuit is open that all workers share, and lets one of them run as the probe. It
holds the messages of a task that this worker has only seen fail, and all messages while the writer is full.
A held message is unacknowledged, like one that waits for Celery's own rate limit. So nothing is lost or
doubled: a warm shutdown, a lost connection or a crash gives it back to the broker.

While all circuits are closed, this costs a lookup in an empty set. Nothing here waits for the store: see
:mod:`celery_dlq.worker.admission.circuits`. If a message has to wait for a process of the pool, its circuit
is checked again when a process is free.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

from celery.utils.log import get_logger
from celery.worker import state

from celery_dlq.model.letter import DeadLetter, Outcome
from celery_dlq.model.states import Reason, Verdict
from celery_dlq.model.worker import Circuit, CircuitState
from celery_dlq.retry import BreakerLimits
from celery_dlq.retry.breaker import probed
from celery_dlq.retry.policy import Uniform, uniform
from celery_dlq.store.base import NO_COPY
from celery_dlq.worker.admission import Guard, Onward, watch_end
from celery_dlq.worker.admission.circuits import Clock, OwnCircuits, SharedCircuits
from celery_dlq.worker.body.report import reported
from celery_dlq.worker.end.closing import Probe
from celery_dlq.worker.end.letters import letter_of_open_circuit
from celery_dlq.worker.end.request import DLQRequest
from celery_dlq.worker.failure import logged
from celery_dlq.worker.message import came_back, name_of
from celery_dlq.worker.options import FAILURES, STREAK, circuit_of, limits_of
from celery_dlq.worker.wiring import Captures
from celery_dlq.worker.writing.loop_callbacks import LoopCallbacks
from celery_dlq.worker.writing.writer import Writer

logger: logging.Logger = get_logger(__name__)

_EXECUTE = "execute_using_pool"

#: Seconds between two exchanges with the store, usually and while there are failures to report.
TICK_S, TELL_S = 1.0, 0.1
#: A worker that knows no open circuit is quiet after this many exchanges without a message, and makes every
#: tenth one then.
QUIET_TICKS, IDLE_TICKS = 10, 10
#: Seconds between looks at the held messages.
LOOK_S = 0.25
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


@dataclass(frozen=True)
class _Held:
    request: Any
    since: float
    #: How far the prefetch limit was raised for it.
    raised: int
    size: int


class Valve(Guard):
    """Parks or holds messages, and lets probes run: one among all workers, or one of each task in this
    worker.

    :param writer: holds the letters until they are written, and puts questions to the store.
    :param draw: spreads the messages that are due at the same time.
    """

    def __init__(
        self,
        capture: Captures,
        desk: LoopCallbacks,
        writer: Writer,
        *,
        draw: Uniform = uniform,
        monotonic: Clock = time.monotonic,
    ) -> None:
        self._capture, self._desk, self._is_full = capture, desk, writer.is_full
        self._draw, self._monotonic = draw, monotonic
        self.shared: SharedCircuits = SharedCircuits(writer, monotonic)
        self.own: OwnCircuits = OwnCircuits({}, monotonic)
        #: Tasks with a limit of transient failures.
        self._watched: frozenset[str] = frozenset()
        self._give_slot_back: Callable[[], object] | None = None
        self.parking: Guard = _Parking(self)
        #: Leads a request past the guards after :attr:`parking`.
        self._enter: Onward
        #: Exchanges since a message came, or a run ended.
        self._quiet_ticks = 0
        #: The running probes, each with what follows if it ends without a result.
        self._probes: dict[Any, Callable[[], object]] = {}
        self._held: list[_Held] = []
        self._hold_at_most_s = HOLD_S
        # Without an event loop Celery runs its timers on a thread.
        self._lock = threading.Lock()

    def join(self, consumer: Any, onward: Onward) -> bool:
        """Every message has to pass: the writer may be full at any time."""
        self.own = OwnCircuits(_limits_of_all(consumer, STREAK), self._monotonic)
        return super().join(consumer, onward)

    def admits(self, request: Any) -> bool:
        """Whether the task of ``request`` may run. If not, the request is held."""
        return (not self.own.limits and not self._is_full()) or not self._holds(request)

    def start(self) -> None:
        """The broker is connected."""
        channel = self._consumer.connection.default_channel
        visible_after_s = getattr(channel, "visibility_timeout", None)
        if visible_after_s:
            # Half of it, because some seconds had passed before the message came here.
            self._hold_at_most_s = min(HOLD_S, float(visible_after_s) / 2)
        calls: list[tuple[float, Callable[[], object]]] = [(LOOK_S, self.look)]
        if self._watched:
            calls += (TICK_S, self.tick), (TELL_S, self.shared.tell)
            self.tick()  # to know the open circuits before messages come
        self._repeat(*calls)

    def stop(self) -> None:
        """The connection is lost, or about to be closed. The broker delivers the held messages again. Probes
        stay: one that runs may end well, and for one that is forgotten the next look allows another."""
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
        raised = _raise_prefetch(qos)

        def settle() -> object:
            qos.decrement_eventually(raised)
            return then()

        return settle

    def note(self, record: DeadLetter | Outcome) -> None:
        """``record`` is about to be written."""
        if isinstance(record, DeadLetter) and record.reason in OF_A_RUN:
            with logged(logger, "celery_dlq could not count a run of %s", record.task):
                self.own.failed(record.task)

    def opens_with(self, task: Any, args: Any, kwargs: Any) -> bool:
        """Whether the circuit of a message with these arguments is open, or would open if the message failed
        with a transient failure. Called in the process that ran the body, which may be a process of the
        pool."""
        with logged(logger, "celery_dlq could not look at the circuit of %s", task):
            limits = limits_of(task, FAILURES)
            if limits is None or (limits.failures > 1 and not self.shared.names):
                return False
            name = circuit_of(task, args, kwargs)
            return name is not None and (limits.failures <= 1 or name in self.shared.names)
        return False

    def ended(self, request: Any, verdict: Verdict | None) -> None:
        """Note that a run of ``request`` failed with ``verdict``; None if the failure says nothing about the
        services that the task needs."""
        with logged(logger, "celery_dlq could not count a run of %s", request.task):
            limits = limits_of(request.task, FAILURES)
            if limits is None:
                return
            self._quiet_ticks = 0
            if request.dlq_probe is not None:
                self._end_probe(request, verdict)
            elif verdict is Verdict.TRANSIENT:
                name = circuit_of(request.task, request.args, request.kwargs)
                if name is not None:
                    self.shared.failed(name, limits)

    def tick(self) -> None:
        """Exchange news about the shared circuits with the store."""
        with logged(logger, "celery_dlq could not exchange news about circuits"):
            is_quiet = self._quiet_ticks >= QUIET_TICKS and not (self._probes or self.shared.tasks)
            if not is_quiet or self._quiet_ticks % IDLE_TICKS == 0:
                self.shared.tick()
            self._quiet_ticks += 1

    def look(self) -> None:
        """Let go of the held messages that may run, give back those that have waited too long, and give up
        probes that ended without a result."""
        if self._consumer.connection is None:  # lost: the broker delivers the messages again
            return
        with logged(logger, "celery_dlq could not look after held messages"):
            for request, ended in [*self._probes.items()]:
                # Compared by identity: its retry may be here already, under the same id.
                if request not in state.reserved_requests:
                    self._probes.pop(request, None)
                    ended()
            for held, act in self._freed():
                with logged(logger, "celery_dlq could not let go of %s", held.request):
                    if held.raised:
                        self._consumer.qos.decrement_eventually(held.raised)
                    act(held.request)

    def status(self) -> Mapping[str, Any]:
        """The held messages and the circuits that are not closed, for ``celery inspect stats``."""
        circuits = {
            one.name: one.shown(messages=messages)
            for messages, known in (("parked", self.shared.known), ("held", {**self.own.known}))
            for one in known.values()
            if one.state is not CircuitState.CLOSED
        }
        return {"held": len(self._held), "writer_full": self._is_full(), "circuits": circuits}

    # Holding

    def _holds(self, request: Any) -> bool:
        # Not by logged(), because each message that succeeds pays for this.
        try:
            if not isinstance(request, DLQRequest):
                return False
            task, own = request.type, self.own
            if task in own.limits:
                watch_end(request, partial(self._on_end, task))
            is_open = task in own.known and own.state_of(task) is not CircuitState.CLOSED
            if not (is_open or self._is_full()):
                return False
            self._hold(request)
        except Exception:
            logger.exception("celery_dlq could not hold %s", request)
            return False
        return True

    def _hold(self, request: Any) -> None:
        size = len(request.body) if isinstance(request.body, (bytes, str)) else 0
        with self._lock:
            has_room = (
                not self._is_full()
                and sum(held.raised for held in self._held) < SPARE
                and size + sum(held.size for held in self._held) <= SPARE_BYTES
            )
            raised = _raise_prefetch(self._consumer.qos) if has_room else 0
            self._held.append(_Held(request, self._monotonic(), raised, size))

    def _on_end(self, task: str, result: tuple[Any, Any, Any]) -> None:
        has_failed, einfo, _runtime = result
        if not has_failed:
            self.own.succeeded(task)
        elif reported(einfo).for_error:
            self.own.failed(task)

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
        if self.own.state_of(task) is CircuitState.CLOSED or _is_dropped(request):
            return True
        if not self.own.take_probe(task, request.id):
            return False
        self._probes[request] = partial(self.own.probe_ended, task, request.id)
        return True

    # Parking

    def join_after_copies(self, consumer: Any, onward: Onward) -> bool:
        """Get ready to park. Returns whether any task of the app has a limit of transient failures."""
        self._enter, self._watched = onward, frozenset(_limits_of_all(consumer, FAILURES))
        # Only prefork has slots; in other pools a message waits in the pool itself.
        self._give_slot_back = getattr(consumer.controller, "_quick_release", None)
        return bool(self._watched)

    def passes(self, request: Any) -> bool:
        """Whether the shared circuit of ``request`` is closed. If it is not, the message is parked, or runs
        as the probe. A message that came back waits until the store has said whether it was parked
        before: the worker that parked it may have lost its connection before it could acknowledge it."""
        if request.type not in self._watched or not isinstance(request, DLQRequest):
            return True
        was_quiet, self._quiet_ticks = self._quiet_ticks > QUIET_TICKS, 0
        if was_quiet:
            self.tick()  # for the messages after this one
        if came_back(request.message):
            with logged(logger, "celery_dlq could not look for the parked copy of %s", request):
                name, is_exact = name_of(request)
                beginning = f"{self._capture.app.hold.place}.{name}"
                self._desk.ask(
                    lambda store: store.parked.take_back(beginning, exact=is_exact),
                    partial(self._taken_back, request, self._connection),
                )
                return False
        return self._is_let_through(request)

    def _taken_back(self, request: Any, connection: int, may_run: bool | None) -> None:
        if connection != self._connection:
            return  # the broker delivers it again
        if may_run is False:
            logger.warning(
                "%s[%s] was parked, and has run; this copy is dropped", request.name, request.id
            )
            _settle(request)
        elif self._is_let_through(request):
            self._enter(request)

    def _is_let_through(self, request: Any) -> bool:
        if request.type in self.shared.tasks and self._diverts(request):
            return False
        if self._give_slot_back is not None:
            # Celery overrides the method in a subclass for each task, but not on the instance. If a message
            # came back, its request already has a method of its own there.
            own = request.__dict__.get(_EXECUTE)
            request.__dict__[_EXECUTE] = partial(self._execute, request, own)
        return True

    def _execute(self, request: Any, own: Any, pool: Any, **options: Any) -> None:
        """Called by the worker once there is a slot for ``request`` in ``pool``."""
        if own is None:
            del request.__dict__[_EXECUTE]
        else:
            request.__dict__[_EXECUTE] = own
        if request.type in self.shared.tasks and self._diverts(request):
            # Not called directly: it would call the next request that waits for a slot, which would call the
            # next one, and so on.
            self._consumer.timer.call_after(0, self._give_slot_back)
        else:
            request.execute_using_pool(pool, **options)

    def _diverts(self, request: Any) -> bool:
        """Whether the circuit of ``request`` is not closed. If so, ``request`` is parked, or asks to be the
        probe."""
        with logged(logger, "celery_dlq could not park %s", request):
            name = circuit_of(request.task, request.args, request.kwargs)
            circuit = None if name is None else self.shared.known.get(name)
            if name is None or circuit is None or _is_dropped(request):
                return False
            if self.shared.seconds_until_probe(circuit):
                self._park(request, circuit)
                return True
            probe = Probe(name, uuid.uuid4().hex)
            # Until the answer comes, other messages of this worker are parked.
            self.shared.learn(circuit, request.task.dlq_breaker_recovery)
            self._desk.ask(
                lambda store: store.circuits.change({name: partial(probed, probe=probe.token)}),
                partial(self._answered, request, probe, self._connection),
            )
            return True
        return False

    def _answered(
        self, request: Any, probe: Probe, connection: int, changed: tuple[Circuit, ...] | None
    ) -> None:
        runs = True
        with logged(logger, "celery_dlq could not decide about %s", request):
            runs = self._may_run(request, probe, connection, changed)
        if runs:
            self._enter(request)

    def _may_run(
        self, request: Any, probe: Probe, connection: int, changed: tuple[Circuit, ...] | None
    ) -> bool:
        is_connected = connection == self._connection  # if not, the broker delivers it again
        if changed is None:
            return is_connected  # the store is away
        [circuit] = changed
        if circuit.probe == probe.token:
            request.dlq_probe = probe
            if not is_connected:
                self._end_probe(request, None)
                return False
            logger.info("%s[%s] runs as the probe of an open circuit", request.name, request.id)
            self._probes[request] = partial(self._end_probe, request, None)
            self.shared.probes[probe.name] = probe.token
            watch_end(request, partial(self._on_probe_end, request))
        elif is_connected and circuit.state is not CircuitState.CLOSED:
            self._park(request, self.shared.learn(circuit, request.task.dlq_breaker_recovery))
            return False
        return is_connected

    def _on_probe_end(self, request: Any, result: tuple[Any, Any, Any]) -> None:
        if not result[0]:
            # A success says the same as a failure of the task's own: the service has answered.
            self._end_probe(request, Verdict.TERMINAL)

    def _end_probe(self, request: Any, verdict: Verdict | None) -> None:
        probe, request.dlq_probe = request.dlq_probe, None
        limits = limits_of(request.task, FAILURES)
        if probe is not None and limits is not None:
            self._probes.pop(request, None)
            self.shared.end_probe(probe.name, probe.token, verdict, limits)

    def _park(self, request: Any, circuit: Circuit) -> None:
        """Park ``request`` until a probe may run, and for a random part of the recovery time, so that the
        messages do not all come at the same moment."""
        wait_s = recovery_s = request.task.dlq_breaker_recovery
        if circuit.state is CircuitState.OPEN:
            wait_s = self.shared.seconds_until_probe(circuit)
        wait_s += self._draw(0.0, recovery_s)
        due_at = datetime.now(timezone.utc) + timedelta(seconds=wait_s)
        letter = letter_of_open_circuit(request, circuit, due_at, self._capture.app)
        then = partial(self._parked, request, letter, circuit.name, self._connection)
        self._capture.write(letter, then, urgent=True)

    def _parked(self, request: Any, letter: DeadLetter, circuit: str, connection: int) -> None:
        if connection != self._connection:
            # The broker delivers the message again, and that delivery runs.
            self._desk.ask(
                lambda store: store.parked.accept([(letter.parking, NO_COPY)]), lambda _: None
            )
            return
        logger.info(
            "%s[%s] is parked: the circuit of %s is open", request.name, request.id, circuit
        )
        _settle(request)


class _Parking(Guard):
    """The second place of ``valve`` among the guards. It parks after the check for copies, because each copy
    would be parked under a name of its own, and run. It holds before that check, because the store is not to
    be asked about messages that may go back to the broker."""

    def __init__(self, valve: Valve) -> None:
        self.join, self.admits = valve.join_after_copies, valve.passes  # type: ignore[method-assign]


def _limits_of_all(consumer: Any, option: str) -> dict[str, BreakerLimits]:
    tasks = consumer.app.tasks.values()
    return {str(task.name): found for task in tasks if (found := limits_of(task, option))}


def _raise_prefetch(qos: Any) -> int:
    before = qos.value
    return int(qos.increment_eventually() - before)


def _is_dropped(request: Any) -> bool:
    """Whether Celery drops ``request``, because it is revoked or expired."""
    return bool(request.id in state.revoked or request.maybe_expire())


def _give_back(request: Any) -> None:
    request.reject(requeue=True)
    state.task_ready(request)


def _settle(request: Any) -> None:
    """Settle the message of ``request``, which does not run here."""
    request.acknowledge()
    state.task_ready(request)
