"""A guard that parks messages while their circuit is open, and lets one of them run as the probe.

While all circuits are closed, this costs one lookup in an empty set. Nothing here waits for the store: see
:mod:`celery_dlq.worker.admission.circuits`. If a message has to wait for a process of the pool, its circuit
is checked again when a process is free.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

from celery.utils.log import get_logger
from celery.worker import state

from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import Verdict
from celery_dlq.model.worker import Circuit, CircuitChange, CircuitState
from celery_dlq.retry.breaker import probe_failed, probe_succeeded, probe_was_inconclusive, probed
from celery_dlq.retry.policy import Uniform, uniform
from celery_dlq.store.base import NO_COPY
from celery_dlq.worker.admission import ConsumerGuard, Onward, watch_end
from celery_dlq.worker.admission.circuit_options import FAILURES, key_of, limits_of
from celery_dlq.worker.admission.circuits import TELL_S, TICK_S, CircuitBoard, Known, Name
from celery_dlq.worker.message import came_back, name_of
from celery_dlq.worker.request.closing import Probe
from celery_dlq.worker.request.letters import letter_of_open_circuit
from celery_dlq.worker.request.request import DLQRequest
from celery_dlq.worker.wiring import Captures
from celery_dlq.worker.writing.loop_callbacks import LoopCallbacks

logger: logging.Logger = get_logger(__name__)

_EXECUTE = "execute_using_pool"
#: A worker that knows no open circuit is quiet after this many ticks without a message.
QUIET_TICKS = 10
#: Ticks between two exchanges with the store while a worker is quiet.
IDLE_TICKS = 10


class Breaker(ConsumerGuard):
    """Parks the messages of open circuits, and lets one probe run among all workers.

    :param draw: spreads the messages that are due at the same time.
    """

    def __init__(
        self,
        capture: Captures,
        desk: LoopCallbacks,
        board: CircuitBoard,
        *,
        draw: Uniform = uniform,
    ) -> None:
        self._capture, self._desk, self._board = capture, desk, board
        self._draw = draw
        #: Tasks with a limit of transient failures.
        self._watched: frozenset[str] = frozenset()
        self._give_slot_back: Callable[[], object] | None = None
        #: Ticks since a message came, or a run ended.
        self._quiet_ticks = 0
        self._probes: dict[str, Any] = {}

    def join(self, consumer: Any, onward: Onward) -> bool:
        """Messages have to pass this guard if any task of the app has a limit of transient failures."""
        super().join(consumer, onward)
        tasks = consumer.app.tasks.values()
        self._watched = frozenset(str(task.name) for task in tasks if limits_of(task, FAILURES))
        # Only prefork has slots; in other pools a message waits in the pool itself.
        self._give_slot_back = getattr(consumer.controller, "_quick_release", None)
        return bool(self._watched)

    def admits(self, request: Any) -> bool:
        """Whether the circuit of ``request`` is closed. If it is not, the message is parked, or runs as the
        probe. A message that came back waits until the store has said whether it was parked before."""
        was_quiet, self._quiet_ticks = self._quiet_ticks > QUIET_TICKS, 0
        if was_quiet:
            self.tick()  # for the messages after this one
        try:
            if self._may_be_parked(request):
                self._take_back(request)
                return False
        except Exception:
            logger.exception("celery_dlq could not tell whether %s is parked", request)
        return self._is_let_through(request)

    def start(self) -> None:
        """Called when the broker is connected."""
        if self._watched:
            self._repeat((TICK_S, self.tick), (TELL_S, self._tell))
            self.tick()  # to know the open circuits before messages come

    def tick(self) -> None:
        """Exchange news with the store, and give up probes that ended without a result."""
        with _guarded():
            for request in list(self._probes.values()):
                if request not in state.reserved_requests:
                    self._end(request, None)
            is_quiet = self._quiet_ticks >= QUIET_TICKS and not (self._probes or self._board.tasks)
            if not is_quiet or self._quiet_ticks % IDLE_TICKS == 0:
                self._board.tick()
            self._quiet_ticks += 1

    def _tell(self) -> None:
        with _guarded():
            self._board.tell()

    def opens_with(self, task: Any, args: Any, kwargs: Any) -> bool:
        """Whether the circuit of a message with these arguments is open, or would open if the message failed
        with a transient failure. Called in the process that ran the body, which may be a process of the
        pool."""
        with _guarded():
            limits = limits_of(task, FAILURES)
            find = partial(_name_of_circuit, task, args, kwargs)
            return limits is not None and self._board.opens_with(find, limits)
        return False

    def ended(self, request: Any, verdict: Verdict | None) -> None:
        """Note that a run of ``request`` failed with ``verdict``; None if the failure says nothing about the
        services that the task needs."""
        with _guarded():
            limits = limits_of(request.task, FAILURES)
            if limits is None:
                return
            self._quiet_ticks = 0
            if request.dlq_probe is not None:
                self._end(request, verdict)
            elif verdict is Verdict.TRANSIENT:
                name = _name_of_circuit(request.task, request.args, request.kwargs)
                if name is not None:
                    self._board.failed(name, limits)

    def status(self) -> Mapping[str, Mapping[str, Any]]:
        """The circuits that are not closed, for ``celery inspect stats``."""
        return self._board.status()

    def _take_back(self, request: Any) -> None:
        name = name_of(request)
        beginning = f"{self._capture.app.hold.place}.{name.text}"
        self._desk.ask(
            lambda store: store.parked.take_back(beginning, exact=name.exact),
            partial(self._taken_back, request, self._connection),
        )

    def _may_be_parked(self, request: Any) -> bool:
        """Whether the message of ``request`` came back. If so, a worker may have parked it, and lost its
        connection before it could acknowledge the message."""
        return (
            isinstance(request, DLQRequest)
            and came_back(request.message)
            and limits_of(request.task, FAILURES) is not None
        )

    def _taken_back(self, request: Any, connection: int, may_run: bool | None) -> None:
        if connection != self._connection:
            return  # the broker delivers it again
        if may_run is False:
            logger.warning(
                "%s[%s] was parked, and has run; this copy is dropped", request.name, request.id
            )
            _settle(request)
        elif self._is_let_through(request):
            self._onward(request)

    def _is_let_through(self, request: Any) -> bool:
        if request.type in self._board.tasks and self._diverts(request):
            return False
        if self._give_slot_back is not None and request.type in self._watched:
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
        if request.type in self._board.tasks and self._diverts(request):
            # Not called directly: it would call the next request that waits for a slot, which would call the
            # next one, and so on.
            self._consumer.timer.call_after(0, self._give_slot_back)
        else:
            request.execute_using_pool(pool, **options)

    def _diverts(self, request: Any) -> bool:
        try:
            known = self._circuit_of(request)
            if known is None or request.id in state.revoked or request.maybe_expire():
                return False  # Celery drops a message that is revoked or expired
            if not self._board.seconds_until_probe(known):
                self._ask_for_probe(request, known.circuit)
            else:
                self._park(request, known)
        except Exception:
            logger.exception("celery_dlq could not park %s", request)
            return False
        return True

    def _circuit_of(self, request: Any) -> Known | None:
        if not isinstance(request, DLQRequest) or limits_of(request.task, FAILURES) is None:
            return None
        name = _name_of_circuit(request.task, request.args, request.kwargs)
        return None if name is None else self._board.find(name)

    def _ask_for_probe(self, request: Any, circuit: Circuit) -> None:
        name, token = (circuit.task, circuit.key), uuid.uuid4().hex
        # Until the answer comes, other messages of this worker are parked.
        self._board.learn(circuit, self._recovery_s(request))
        self._desk.ask(
            lambda store: store.circuits.change({name: partial(probed, probe=token)}),
            partial(self._answered, request, Probe(name, token), self._connection),
        )

    def _answered(
        self, request: Any, probe: Probe, connection: int, changed: tuple[Circuit, ...] | None
    ) -> None:
        try:
            runs = self._may_run(request, probe, connection, changed)
        except Exception:
            logger.exception("celery_dlq could not decide about %s", request)
            runs = True
        if runs:
            self._onward(request)

    def _may_run(
        self, request: Any, probe: Probe, connection: int, changed: tuple[Circuit, ...] | None
    ) -> bool:
        if changed is None:
            return connection == self._connection  # the store is away
        [circuit] = changed
        is_probe = circuit.probe == probe.token
        if connection != self._connection:  # the broker delivers it again
            if is_probe:
                self._board.end_probe(
                    probe.name, probe.token, partial(probe_was_inconclusive, probe=probe.token)
                )
            return False
        if is_probe:
            self._begin(request, probe)
        elif circuit.state is not CircuitState.CLOSED:
            self._park(request, self._board.learn(circuit, self._recovery_s(request)))
            return False
        return True

    def _begin(self, request: Any, probe: Probe) -> None:
        logger.info("%s[%s] runs as the probe of an open circuit", request.name, request.id)
        request.dlq_probe = probe
        self._probes[probe.token] = request
        self._board.begin_probe(probe.name, probe.token)
        watch_end(request, partial(self._on_end, request))

    def _on_end(self, request: Any, result: tuple[Any, Any, Any]) -> None:
        if not result[0]:
            with _guarded():
                self._end(request, None, succeeded=True)

    def _end(self, request: Any, verdict: Verdict | None, *, succeeded: bool = False) -> None:
        probe, request.dlq_probe = request.dlq_probe, None
        limits = limits_of(request.task, FAILURES)
        if probe is None or limits is None:
            return
        self._probes.pop(probe.token, None)
        if verdict is Verdict.TRANSIENT:
            end: CircuitChange = partial(probe_failed, probe=probe.token, limits=limits)
        elif succeeded or verdict is Verdict.TERMINAL:
            # The task may have failed for a reason of its own, but the service works: it has answered.
            end = partial(probe_succeeded, probe=probe.token)
        else:
            end = partial(probe_was_inconclusive, probe=probe.token)
        self._board.end_probe(probe.name, probe.token, end)

    def _park(self, request: Any, known: Known) -> None:
        due_at = datetime.now(timezone.utc) + timedelta(seconds=self._wait_s(request, known))
        letter = letter_of_open_circuit(request, known.circuit, due_at, self._capture.app)
        then = partial(self._parked, request, letter, known.circuit.name, self._connection)
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

    def _wait_s(self, request: Any, known: Known) -> float:
        """Seconds until a probe may run, and a random part of the recovery time, so that the messages do not
        all come at the same moment."""
        recovery_s = self._recovery_s(request)
        is_open = known.circuit.state is CircuitState.OPEN
        until_probe_s = self._board.seconds_until_probe(known) if is_open else recovery_s
        return until_probe_s + self._draw(0.0, recovery_s)

    def _recovery_s(self, request: Any) -> float:
        return float(request.task.dlq_breaker_recovery)


@contextlib.contextmanager
def _guarded() -> Iterator[None]:
    """Log an error of the breaker, which must not keep a message from running, or from being settled."""
    try:
        yield
    except Exception:
        logger.exception("celery_dlq's breaker failed")


def _name_of_circuit(task: Any, args: Any, kwargs: Any) -> Name | None:
    key = key_of(task, args, kwargs)
    return None if key is None else (str(task.name), key)


def _settle(request: Any) -> None:
    """Settle the message of ``request``, which does not run here."""
    request.acknowledge()
    state.task_ready(request)
