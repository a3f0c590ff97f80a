"""Letters of messages that wait in the store instead of being run: retries with a long wait, and messages
whose circuit is open."""

from __future__ import annotations

import uuid
from datetime import datetime, timezone
from typing import Any

from celery_dlq.errors import CircuitOpen
from celery_dlq.model.circuit import Circuit
from celery_dlq.model.fingerprint import Grounds
from celery_dlq.model.headers import CIRCUIT_HEADER, FREE_HEADER, redrive_of
from celery_dlq.model.letter import DeadLetter, Explanation, Failure, Parking
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.worker.failure import read_attempts, type_name
from celery_dlq.worker.identity import name_of
from celery_dlq.worker.wiring import Wiring
from celery_dlq.worker.writing.snapshot import sendable_envelope, snapshot


def new_parking(place: str, message: str = "") -> str:
    """A unique name for a parking. It begins with the ``place`` (the broker), then the name of the
    ``message``, if there is one."""
    return f"{place}.{message}{uuid.uuid4().hex[: 32 - len(message)]}"


def parked_letter(request: Any, parking: Parking, wiring: Wiring) -> DeadLetter:
    """The letter of a retry of ``request`` (a worker's Request) that waits in the store."""
    return snapshot(request, parking.failure, wiring).with_(
        state=State.PARKED,
        parking=parking.id,
        due_at=parking.due_at,
        envelope=parking.envelope,
    )


def letter_of_open_circuit(
    request: Any, circuit: Circuit, due_at: datetime, wiring: Wiring
) -> DeadLetter:
    """The letter of ``request`` (a worker's Request), which is not run while ``circuit`` is open.

    The message is kept as it came, except for its attempts: they begin again, because the attempts so far
    may have been used up by the outage that opened the circuit. Its retry window continues.
    """
    retries = request.request_dict.get("retries")
    free = {FREE_HEADER: retries} if type(retries) is int and retries > 0 else {}
    parking = Parking(
        id=new_parking(wiring.hold.place, name_of(request).text),
        failure=_open_circuit(request, circuit),
        envelope=sendable_envelope(
            request.message, request.app, {CIRCUIT_HEADER: circuit.key, **free}
        ),
        due_at=due_at,
    )
    # There may be no attempt that says it.
    redrive = redrive_of(request.message.headers)
    return parked_letter(request, parking, wiring).with_(redrive_count=redrive)


def _open_circuit(request: Any, circuit: Circuit) -> Failure:
    why = f"the circuit of {circuit.name} is open"
    return Failure(
        reason=Reason.PARKED,
        explanation=Explanation(verdict=Verdict.TRANSIENT, rule="breaker.open", evidence=why),
        exception_type=type_name(CircuitOpen),
        message=why,
        traceback="",
        grounds=Grounds(),
        failed_at=datetime.now(timezone.utc),
        attempts=read_attempts(request.request_dict),
        pid=None,
    )
