"""Keeps releases parked while their circuit is open, because each would only be parked again. One message per
circuit is released when a probe may run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from celery_dlq.model.circuit import Circuit, Circuits, CircuitState
from celery_dlq.model.headers import CIRCUIT_HEADER, circuit_of, has_header
from celery_dlq.retry.backoff import Uniform, uniform
from celery_dlq.store.base import Release

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Seconds after which messages that wait for a probe's end are checked again.
PROBING_S = 2.0
#: Seconds after which a probe is overdue: no worker still has a breaker for that task, so its circuit will
#: never be closed.
OVERDUE = timedelta(seconds=60)
#: Messages that are put off together come back in this many parts.
PARTS = 10


def keep_back(
    store: Store, taken: Sequence[Release], draw: Uniform = uniform
) -> tuple[Release, ...]:
    """Put off the messages in ``taken`` whose circuit is open; returns the others.

    :raises StoreError: the store failed.
    """
    if not any(has_header(one.letter.envelope.headers, CIRCUIT_HEADER) for one in taken):
        return tuple(taken)
    going, waiting = _parted(taken, store.circuits.read_open())
    for wait_s, releases in waiting:
        for part in range(PARTS):
            if releases[part::PARTS]:
                delay_s = wait_s + draw(0.0, max(wait_s, PROBING_S))
                store.parked.put_off(releases[part::PARTS], delay_s=delay_s)
    return tuple(going)


def _parted(
    taken: Sequence[Release], seen: Circuits
) -> tuple[list[Release], Iterator[tuple[float, list[Release]]]]:
    circuits = {(circuit.task, circuit.key): circuit for circuit in seen.circuits}
    going, waiting = list[Release](), dict[tuple[str, str], list[Release]]()
    for release in taken:
        name = _name_of(release)
        circuit = circuits.get(name) if name else None
        if name is None or circuit is None or is_overdue(circuit, seen.now):
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
    key = circuit_of(release.letter.envelope.headers)
    return None if key is None else (release.letter.task, key)


def _wait_s(circuit: Circuit, now: datetime) -> float:
    """Seconds until a probe may run; while a circuit is half open, its messages wait for the end of the
    probe."""
    if circuit.state is CircuitState.HALF_OPEN:
        until = circuit.probe_until
        return 0.0 if until is not None and until <= now else PROBING_S
    return (circuit.probe_at - now).total_seconds() if circuit.probe_at else 0.0


def is_overdue(circuit: Circuit, now: datetime) -> bool:
    """Whether no worker probes ``circuit`` any more, so that it will never be closed."""
    due = circuit.probe_until if circuit.state is CircuitState.HALF_OPEN else circuit.probe_at
    return due is None or now - due > OVERDUE
