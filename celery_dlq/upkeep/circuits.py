"""Releases whose circuit is open stay where they are: each would only come back. One of each circuit goes
when a probe may run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from celery_dlq.circuit import Circuit, Circuits, CircuitState
from celery_dlq.headers import CIRCUIT_HEADER
from celery_dlq.retry.backoff import Uniform, uniform
from celery_dlq.store.base import Release, Store

#: Seconds after which those are looked at again that wait for a probe's end.
PROBING_S = 2.0
#: Seconds after which a probe is overdue: no worker has a breaker for that task any more, and nobody will
#: close its circuit.
OVERDUE = timedelta(seconds=60)
#: Those that are put off together come back in so many parts.
PARTS = 10


def keep_back(
    store: Store, taken: Sequence[Release], draw: Uniform = uniform
) -> tuple[Release, ...]:
    """Put off those of ``taken`` whose circuit is open; returns the others.

    :raises StoreError: the store failed.
    """
    if not any(CIRCUIT_HEADER in release.letter.envelope.headers for release in taken):
        return tuple(taken)
    going, waiting = _parted(taken, store.open_circuits())
    for wait_s, releases in waiting:
        for part in range(PARTS):
            if releases[part::PARTS]:
                delay_s = wait_s + draw(0.0, max(wait_s, PROBING_S))
                store.put_off(releases[part::PARTS], delay_s=delay_s)
    return tuple(going)


def _parted(
    taken: Sequence[Release], seen: Circuits
) -> tuple[list[Release], Iterator[tuple[float, list[Release]]]]:
    circuits = {(circuit.task, circuit.key): circuit for circuit in seen.circuits}
    going, waiting = list[Release](), dict[tuple[str, str], list[Release]]()
    for release in taken:
        name = _name_of(release)
        circuit = circuits.get(name) if name else None
        if name is None or circuit is None or _is_overdue(circuit, seen.now):
            going.append(release)
        else:
            waiting.setdefault(name, []).append(release)
    for name, releases in waiting.items():
        if _wait_s(circuits[name], seen.now) <= 0.0:
            going.append(releases.pop(0))
    return going, (
        (max(PROBING_S, _wait_s(circuits[name], seen.now)), releases)
        for name, releases in waiting.items()
    )


def _name_of(release: Release) -> tuple[str, str] | None:
    key = release.letter.envelope.headers.get(CIRCUIT_HEADER)
    return (release.letter.task, key) if isinstance(key, str) else None


def _wait_s(circuit: Circuit, now: datetime) -> float:
    """Seconds until a probe may run; those of a circuit that is half open wait for the end of it."""
    if circuit.state is CircuitState.HALF_OPEN:
        until = circuit.probe_until
        return 0.0 if until is not None and until <= now else PROBING_S
    return (circuit.probe_at - now).total_seconds() if circuit.probe_at else 0.0


def _is_overdue(circuit: Circuit, now: datetime) -> bool:
    due = circuit.probe_until if circuit.state is CircuitState.HALF_OPEN else circuit.probe_at
    return due is None or now - due > OVERDUE
