"""Before the pool: a message whose circuit is open is parked instead of run, and one of them is the probe.

Where there is no circuit that is not closed, this costs a look at an empty set. Nothing here waits for the
store: see :mod:`celery_dlq.worker.admission.circuits`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

from celery.utils.log import get_logger
from celery.worker import state

from celery_dlq.circuit import Circuit, CircuitChange, CircuitState
from celery_dlq.letter import DeadLetter
from celery_dlq.retry import BreakerLimits
from celery_dlq.retry.backoff import Uniform, uniform
from celery_dlq.retry.breaker import (
    probe_failed,
    probe_succeeded,
    probe_told_nothing,
    probed,
)
from celery_dlq.states import Verdict
from celery_dlq.store.base import NO_COPY
from celery_dlq.worker.admission.circuit_key import key_of
from celery_dlq.worker.admission.circuits import TICK_S, CircuitBoard, Known
from celery_dlq.worker.admission.deliveries import came_back
from celery_dlq.worker.admission.watched import Probe, WatchedRequest
from celery_dlq.worker.body.parking import held_letter
from celery_dlq.worker.identity import name_of
from celery_dlq.worker.recording.recorder import Recorder
from celery_dlq.worker.wiring import Wiring

logger = get_logger(__name__)


def limits_of(task: Any) -> BreakerLimits | None:
    """When the circuits of ``task`` open; None where they never do, as for those that are not on DLQTask."""
    failures = getattr(task, "dlq_breaker_failures", 0)
    if not failures:
        return None
    return BreakerLimits(failures, task.dlq_breaker_window, task.dlq_breaker_recovery)


class Breaker:
    """Parks the messages of open circuits, and lets one probe run among all workers.

    :param draw: parts the messages that are due at the same time.
    """

    def __init__(
        self,
        wiring: Wiring,
        recorder: Recorder,
        board: CircuitBoard,
        *,
        draw: Uniform = uniform,
    ) -> None:
        self._wiring, self._recorder, self._board = wiring, recorder, board
        self._draw = draw
        self._run: Callable[[Any], object]
        self._consumer: Any = None
        self._timer_entry: Any = None
        self._watched = False
        #: Goes up with every lost connection: what was asked before must not run any more.
        self._connection = 0
        self._probes: dict[str, Any] = {}

    def join(self, consumer: Any, tasks: Iterable[Any]) -> None:
        """Stand before the pool of ``consumer``; once, before it starts. Where none of ``tasks`` has a
        breaker, it is as if this was not there."""
        self._consumer = consumer
        self._watched = any(limits_of(task) for task in tasks)
        if self._watched:
            self._run = consumer.on_task_request
            consumer.on_task_request = self._take

    def start(self) -> None:
        """The broker is connected."""
        if self._watched:
            self._timer_entry = self._consumer.timer.call_repeatedly(TICK_S, self.tick)
            self.tick()  # what is open already should be known before messages come

    def stop(self) -> None:
        """The connection is lost or about to be closed; the broker delivers again what waits."""
        self._connection += 1
        if self._timer_entry is not None:
            self._timer_entry.cancel()
            self._timer_entry = None

    def tick(self) -> None:
        """Exchange news, and give up probes that ended without a word."""
        try:
            for request in list(self._probes.values()):
                if request not in state.reserved_requests:
                    self._end(request, None)
            self._board.tick()
        except Exception:
            logger.exception("celery_dlq's breaker failed")

    def ended(self, request: Any, verdict: Verdict | None) -> None:
        """A run of ``request`` failed with ``verdict``; None where it says nothing about what the task
        needs."""
        try:
            limits = limits_of(request.task)
            if limits is None:
                return
            if request.dlq_probe is not None:
                self._end(request, verdict)
            elif verdict is Verdict.TRANSIENT:
                key = key_of(request.task, request.args, request.kwargs)
                if key is not None:
                    self._board.failed((request.type, key), limits)
        except Exception:
            logger.exception("celery_dlq's breaker failed")

    def status(self) -> Mapping[str, Any]:
        """What is open, for ``celery inspect stats``."""
        return {"circuits": self._board.status()}

    def _take(self, request: Any) -> None:
        """Stands in for the consumer's ``on_task_request``."""
        try:
            if self._may_be_parked(request):
                self._take_back(request)
                return
        except Exception:
            logger.exception("celery_dlq could not tell whether %s is parked", request)
        self._go_on(request)

    def _take_back(self, request: Any) -> None:
        name = name_of(request)
        beginning = f"{self._wiring.hold.place}.{name.text}"
        self._recorder.ask(
            lambda store: store.take_back(beginning, exact=name.exact),
            partial(self._taken_back, request, self._connection),
        )

    def _may_be_parked(self, request: Any) -> bool:
        """Whether its message came back, so that a worker may have parked it and then lost its connection
        before it could acknowledge."""
        return (
            isinstance(request, WatchedRequest)
            and came_back(request.message)
            and limits_of(request.task) is not None
        )

    def _taken_back(self, request: Any, connection: int, may_run: bool | None) -> None:
        if connection != self._connection:
            return  # the broker delivers it again
        if may_run is False:
            logger.warning(
                "%s[%s] was parked, and has run; this copy is dropped", request.name, request.id
            )
            _settle(request)
        else:
            self._go_on(request)

    def _go_on(self, request: Any) -> None:
        if request.type not in self._board.tasks or not self._diverts(request):
            self._run(request)

    def _diverts(self, request: Any) -> bool:
        try:
            known = self._circuit_of(request)
            if known is None or request.id in state.revoked or request.maybe_expire():
                return False  # Celery drops what is revoked or expired
            if not self._board.seconds_until_probe(known):
                self._ask_for_probe(request, known.circuit)
            else:
                self._park(request, known)
        except Exception:
            logger.exception("celery_dlq could not park %s", request)
            return False
        return True

    def _circuit_of(self, request: Any) -> Known | None:
        if not isinstance(request, WatchedRequest) or limits_of(request.task) is None:
            return None
        key = key_of(request.task, request.args, request.kwargs)
        return None if key is None else self._board.find((request.type, key))

    def _ask_for_probe(self, request: Any, circuit: Circuit) -> None:
        name, token = (circuit.task, circuit.key), uuid.uuid4().hex
        # Until the answer is there, other messages of this worker are parked.
        self._board.learn(circuit, self._recovery_s(request))
        self._recorder.ask(
            lambda store: store.change_circuits({name: partial(probed, probe=token)}),
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
            self._run(request)

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
                    probe.name, probe.token, partial(probe_told_nothing, probe=probe.token)
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
        # Celery shadows on_success with a subclass made per task; it sees an instance's own.
        request.__dict__["on_success"] = partial(self._on_success, request, request.on_success)

    def _on_success(
        self,
        request: Any,
        succeed: Callable[..., object],
        result: tuple[Any, Any, Any],
        **kwargs: Any,
    ) -> None:
        request.__dict__.pop("on_success", None)  # it refers to itself
        if not result[0]:
            self._guarded_end(request)
        succeed(result, **kwargs)

    def _guarded_end(self, request: Any) -> None:
        try:
            self._end(request, None, succeeded=True)
        except Exception:
            logger.exception("celery_dlq's breaker failed")

    def _end(self, request: Any, verdict: Verdict | None, *, succeeded: bool = False) -> None:
        probe, request.dlq_probe = request.dlq_probe, None
        limits = limits_of(request.task)
        if probe is None or limits is None:
            return
        self._probes.pop(probe.token, None)
        if verdict is Verdict.TRANSIENT:
            end: CircuitChange = partial(probe_failed, probe=probe.token, limits=limits)
        elif succeeded or verdict is Verdict.TERMINAL:
            # Also a failure that is the task's own: what it needs was there to say no.
            end = partial(probe_succeeded, probe=probe.token)
        else:
            end = partial(probe_told_nothing, probe=probe.token)
        self._board.end_probe(probe.name, probe.token, end)

    def _park(self, request: Any, known: Known) -> None:
        due_at = datetime.now(timezone.utc) + timedelta(seconds=self._wait_s(request, known))
        letter = held_letter(request, known.circuit, due_at, self._wiring)
        then = partial(self._parked, request, letter, known.circuit.name, self._connection)
        self._wiring.record(letter, then, urgent=True)

    def _parked(self, request: Any, letter: DeadLetter, circuit: str, connection: int) -> None:
        if connection != self._connection:
            # The broker delivers it again, and that one runs.
            self._recorder.ask(
                lambda store: store.accept_releases([(letter.parking, NO_COPY)]), lambda _: None
            )
            return
        logger.info(
            "%s[%s] is parked: the circuit of %s is open", request.name, request.id, circuit
        )
        _settle(request)

    def _wait_s(self, request: Any, known: Known) -> float:
        """Until a probe may run, and a part of the recovery time, so that they do not all come at once."""
        recovery_s = self._recovery_s(request)
        is_open = known.circuit.state is CircuitState.OPEN
        until_probe_s = self._board.seconds_until_probe(known) if is_open else recovery_s
        return until_probe_s + self._draw(0.0, recovery_s)

    def _recovery_s(self, request: Any) -> float:
        return float(request.task.dlq_breaker_recovery)


def _settle(request: Any) -> None:
    """It does not run here any more."""
    request.acknowledge()
    state.task_ready(request)
