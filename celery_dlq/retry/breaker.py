"""When a task's messages stop to run, which one tries again, and what its end means. No clock of its own, and
no state: each rule makes a circuit of a circuit, so that a store can apply it in a transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from celery_dlq.circuit import Circuit, CircuitState

#: Failures are counted in so many slices of the window.
SLICES = 10
#: The recovery time doubles with each probe that fails, up to so many times the first one.
LONGEST = 10.0
#: Seconds for which a probe is believed to run after its worker has last said so.
PROBE_S = 30.0


@dataclass(frozen=True)
class BreakerLimits:
    """When a circuit opens, and for how long. Times are in seconds."""

    failures: int
    window_s: float
    recovery_s: float

    def recovery_after(self, probes: int) -> float:
        """Seconds until the next probe when ``probes`` have failed."""
        return float(self.recovery_s * min(LONGEST, 2.0 ** min(probes, 10)))


def failed(circuit: Circuit, now: datetime, limits: BreakerLimits, number: int = 1) -> Circuit:
    """``number`` runs ended in a transient failure. Those of a circuit that is not closed began before it
    opened, and say nothing new."""
    if circuit.state is not CircuitState.CLOSED:
        return circuit
    recent = _counted(circuit.recent, now.timestamp(), limits.window_s, number)
    failures = sum(count for _, count in recent)
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


def _counted(
    recent: tuple[tuple[float, int], ...], now: float, window_s: float, number: int
) -> tuple[tuple[float, int], ...]:
    # A clock that was set back leaves slices of the future; they would be counted for too long.
    kept = tuple(item for item in recent if now - window_s < item[0] <= now)
    if kept and now - kept[-1][0] < window_s / SLICES:
        *before, (since, count) = kept
        return (*before, (since, count + number))
    return (*kept, (now, number))


def may_be_probed(circuit: Circuit, now: datetime) -> bool:
    """Whether a message may run to see how things are: the recovery time is over, or nothing was
    heard of the probe before."""
    from_ = circuit.probe_at if circuit.state is CircuitState.OPEN else circuit.probe_until
    return circuit.state is not CircuitState.CLOSED and from_ is not None and now >= from_


def probed(circuit: Circuit, now: datetime, probe: str) -> Circuit:
    """The circuit with ``probe`` as the one message that runs, if one may."""
    if not may_be_probed(circuit, now):
        return circuit
    return _running(circuit, now, probe)


def still_probed(circuit: Circuit, now: datetime, probe: str) -> Circuit:
    """``probe`` runs still."""
    return _running(circuit, now, probe) if _is_probe(circuit, probe) else circuit


def probe_succeeded(circuit: Circuit, _now: datetime, probe: str) -> Circuit:
    """What ``probe`` needs is there again."""
    closed = Circuit(task=circuit.task, key=circuit.key)
    return closed if _is_probe(circuit, probe) else circuit


def probe_failed(circuit: Circuit, now: datetime, probe: str, limits: BreakerLimits) -> Circuit:
    """``probe`` ended in a transient failure."""
    if not _is_probe(circuit, probe):
        return circuit
    probes = circuit.probes + 1
    return _waiting(circuit, now + timedelta(seconds=limits.recovery_after(probes)), probes)


def probe_told_nothing(circuit: Circuit, now: datetime, probe: str) -> Circuit:
    """``probe`` ended, and it is not known whether what it needs is there: another one may run at
    once."""
    return _waiting(circuit, now, circuit.probes) if _is_probe(circuit, probe) else circuit


def _is_probe(circuit: Circuit, probe: str) -> bool:
    return circuit.state is CircuitState.HALF_OPEN and circuit.probe == probe


def _running(circuit: Circuit, now: datetime, probe: str) -> Circuit:
    return replace(
        circuit,
        state=CircuitState.HALF_OPEN,
        probe_at=None,
        probe=probe,
        probe_until=now + timedelta(seconds=PROBE_S),
    )


def _waiting(circuit: Circuit, probe_at: datetime, probes: int) -> Circuit:
    return replace(
        circuit,
        state=CircuitState.OPEN,
        probes=probes,
        probe_at=probe_at,
        probe="",
        probe_until=None,
    )
