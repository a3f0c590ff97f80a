"""Releases parked messages: take, publish, confirm, mark.

If the process is killed between any two of these steps, nothing is lost: a message that is not marked is
taken again when its hold has ended, as another copy. No message runs twice, either, because the worker that
gets a copy asks the store first.

A message whose circuit is open stays parked, because it would only be parked again. One message per circuit
is released when a probe may run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from celery.utils.log import get_logger

from celery_dlq.model.headers import CIRCUIT_HEADER, circuit_of, has_header, release_header
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.worker import Circuit, Circuits, CircuitState
from celery_dlq.redrive.broker.amqp import CONFIRM_TIMEOUT_S
from celery_dlq.redrive.broker.message import Sent
from celery_dlq.redrive.broker.publisher import Publisher, open_publisher
from celery_dlq.retry.policy import Uniform, uniform
from celery_dlq.store.base import BATCH_SIZE, Lease, Release

if TYPE_CHECKING:
    from celery_dlq.store import Store

logger: logging.Logger = get_logger(__name__)

#: Seconds before a taken retry can be taken again: longer than one batch can last.
HOLD_S = 2 * CONFIRM_TIMEOUT_S
#: Seconds until a message that the broker has refused is tried again.
REFUSED_S = 60.0
#: Seconds until a message that was not sent, because the connection was lost, is tried again.
UNSENT_S = 5.0
#: Seconds after which messages that wait for a probe's end are checked again.
PROBING_S = 2.0
#: Seconds after which a probe is overdue: no worker still has a breaker for that task, so its circuit will
#: never be closed.
OVERDUE = timedelta(seconds=60)
#: The most messages per second that are released: the services that their tasks need may have been away, too.
RATE = 1_000
#: Messages that are put off together come back in this many parts.
PARTS = 10


class Releaser:
    """Sends the due retries of one place.

    :param batch_size: retries sent in one step.
    :param pause: waits this many seconds between two steps.
    """

    def __init__(
        self, app: Any, store: Callable[[], Store], place: str, *, batch_size: int = BATCH_SIZE,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:  # fmt: skip
        self._app, self._store, self._place = app, store, place
        self._batch_size, self._pause = batch_size, pause

    def run(self, lease: Lease, prolong: Callable[[], Lease | None]) -> float | None:
        """Send due retries, for as long as the lease can be prolonged.

        :returns: seconds until the next one is due; None if none waits.
        :raises StoreError: the store failed.
        :raises RedriveError: the broker does not answer.
        """
        wait_s = self._store().parked.next_due(self._place)
        if wait_s is None or wait_s > 0:
            return wait_s
        with open_publisher(self._app) as publisher:
            held: Lease | None = lease
            while held is not None and (settled := self.send_batch(publisher, held)):
                self._pause(settled / RATE)
                held = prolong()
        return self._store().parked.next_due(self._place)

    def send_batch(self, publisher: Publisher, lease: Lease) -> int:
        """Send due retries, up to one batch; returns how many are settled."""
        store = self._store()
        taken = store.parked.take_due(lease, self._place, limit=self._batch_size, hold_s=HOLD_S)
        if not taken:
            return 0
        going = keep_back(store, taken)
        sent = publisher.send([as_sent(release) for release in going])
        settle(store, going, sent)
        if sent.error:
            logger.error("parked retries could not all be released: %s", sent.error)
        kept_back = len(taken) - len(going)
        return 0 if sent.error else len(sent.confirmed) + kept_back


def settle(store: Store, taken: Sequence[Release], sent: Sent) -> None:
    """Mark the outcome of ``taken``. If the broker did not answer about a retry, its outcome is
    unknown, and its hold has to end first."""
    by_parking = {release.parking: release for release in taken}

    def named(parkings: Sequence[str]) -> list[Release]:
        return [by_parking[parking] for parking in parkings]

    # One transaction each; usually there is only one.
    if sent.confirmed:
        store.parked.confirm(named(sent.confirmed))
    if sent.unsent:
        store.parked.put_off(named(sent.unsent), delay_s=UNSENT_S)
    # A broker that failed while it kept a message refuses it, too, so it may be there: its hold has to end.
    certain = [parking for parking in sent.refused if parking not in sent.nacked]
    if certain:
        store.parked.put_off(named(certain), delay_s=REFUSED_S)
    for parking, why in sent.refused.items():
        logger.error("%s cannot be released: %s", by_parking[parking].letter.task_id, why)


def as_sent(release: Release) -> DeadLetter:
    """The message to publish, with the name of its parking and the number of this copy."""
    envelope = release.letter.envelope
    headers = {**envelope.headers, **release_header(release.parking, release.copy)}
    return release.letter.with_(
        task_id=release.parking, envelope=replace(envelope, headers=headers)
    )


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
