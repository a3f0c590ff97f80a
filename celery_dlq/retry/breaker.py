"""The rules of the circuit breaker: when a task's messages stop running, which one is the probe, and what
its outcome means. There is no clock and no state here: each rule makes a new circuit from a circuit, so
that a store can apply it in a transaction, and a worker to a circuit of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from celery_dlq.model.states import Verdict
from celery_dlq.model.worker import Circuit, CircuitState

#: Failures by the time when they were counted, in seconds.
Counts: TypeAlias = tuple[tuple[float, int], ...]

#: Number of slices of the window in which failures are counted.
SLICES = 10
#: The recovery time doubles with each failed probe, up to this multiple of the first recovery time.
MAX_RECOVERY_FACTOR = 10.0
#: A probe counts as running for this many seconds after the last report of its worker.
PROBE_S = 30.0


@dataclass(frozen=True)
class BreakerLimits:
    """The limit that opens a circuit, and the recovery time. Times are in seconds."""

    failures: int
    window_s: float
    recovery_s: float

    def recovery_after(self, probes: int) -> float:
        """Seconds until the next probe after ``probes`` have failed."""
        return float(self.recovery_s * min(MAX_RECOVERY_FACTOR, 2.0 ** min(probes, 10)))


def failed(
    circuit: Circuit, now: datetime, limits: BreakerLimits, number: int = 1, seen: int = 0
) -> Circuit:
    """The circuit after ``number`` runs failed. If it is not closed, these runs began before it opened, and
    nothing changes.

    :param seen: failures that one worker has itself seen within the window, reported before or not.
    """
    if circuit.state is not CircuitState.CLOSED:
        return circuit
    recent = counted(circuit.recent, now.timestamp(), limits.window_s, number)
    failures = max(seen, total(recent))
    if failures < limits.failures:
        return replace(circuit, recent=recent)
    return Circuit(
        task=circuit.task,
        key=circuit.key,
        state=CircuitState.OPEN,
        failures=failures,
        opened_at=now,
        probe_at=now + timedelta(seconds=limits.recovery_s),
    )


def total(recent: Counts) -> int:
    """The failures in ``recent``."""
    return sum(count for _, count in recent)


def counted(recent: Counts, now: float, window_s: float, number: int = 1) -> Counts:
    """``recent`` with ``number`` further failures at ``now``, without those that left the window."""
    kept = within(recent, now, window_s)
    if kept and now - kept[-1][0] < window_s / SLICES:
        *before, (since, count) = kept
        return (*before, (since, count + number))
    return (*kept, (now, number))


def within(recent: Counts, now: float, window_s: float) -> Counts:
    """The part of ``recent`` that is in the window."""
    # If a clock was set back, some slices are in the future; they would be counted for too long.
    return tuple(item for item in recent if now - window_s < item[0] <= now)


def may_be_probed(circuit: Circuit, now: datetime) -> bool:
    """Whether a probe may run: the recovery time is over, or the previous probe is no longer
    reported."""
    since = circuit.probe_at if circuit.state is CircuitState.OPEN else circuit.probe_until
    return circuit.state is not CircuitState.CLOSED and since is not None and now >= since


def probed(circuit: Circuit, now: datetime, probe: str) -> Circuit:
    """The circuit with ``probe`` as the only running message, if a probe may run. Also if ``probe`` runs
    already: its worker has reported it again."""
    if not (_is_probe(circuit, probe) or may_be_probed(circuit, now)):
        return circuit
    return replace(
        circuit,
        state=CircuitState.HALF_OPEN,
        probe_at=None,
        probe=probe,
        probe_until=now + timedelta(seconds=PROBE_S),
    )


def still_probed(circuit: Circuit, now: datetime, probe: str) -> Circuit:
    """The circuit after a report that ``probe`` still runs."""
    return probed(circuit, now, probe) if _is_probe(circuit, probe) else circuit


def probe_ended(
    circuit: Circuit, now: datetime, probe: str, verdict: Verdict | None, limits: BreakerLimits,
    *, wait_s: float = 0.0,
) -> Circuit:  # fmt: skip
    """The circuit after ``probe`` ended. Only a transient failure says that its service is still away.

    :param verdict: terminal if the service has answered, by a success or by a failure of the task's own; None
        if the end says nothing about the service. Then another probe may run after ``wait_s``.
    """
    if not _is_probe(circuit, probe):
        return circuit
    if verdict is Verdict.TERMINAL:
        return Circuit(task=circuit.task, key=circuit.key)
    probes = circuit.probes
    if verdict is Verdict.TRANSIENT:
        probes, wait_s = probes + 1, limits.recovery_after(probes + 1)
    return replace(
        circuit,
        state=CircuitState.OPEN,
        probes=probes,
        probe_at=now + timedelta(seconds=wait_s),
        probe="",
        probe_until=None,
    )


def _is_probe(circuit: Circuit, probe: str) -> bool:
    return circuit.state is CircuitState.HALF_OPEN and circuit.probe == probe
