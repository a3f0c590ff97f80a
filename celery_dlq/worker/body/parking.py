"""A retry whose wait is too long for the broker: its message is caught before it is sent, and goes to the
store by way of the worker's parent.

The parent acknowledges the message that was retried only when that is durable. A body that catches what
``retry()`` raises, and ends otherwise, has no way to the parent: then the retry goes to the broker after
all, as Celery would have sent it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any, Protocol

from celery.app.task import Context
from celery.exceptions import Retry
from celery.utils.log import get_logger
from celery.utils.time import maybe_make_aware
from kombu import Producer

from celery_dlq.circuit import Circuit
from celery_dlq.errors import CircuitOpen
from celery_dlq.headers import CIRCUIT_HEADER, COMPRESSED_HEADER
from celery_dlq.letter import Attempt, DeadLetter, Envelope, Explanation, Failure, Parking
from celery_dlq.redact import safe_message
from celery_dlq.states import Reason, State, Verdict
from celery_dlq.worker.body.ending import Waiting, here
from celery_dlq.worker.body.failure import app_frames, read_attempts, traceback_text, type_name
from celery_dlq.worker.body.hold import Hold
from celery_dlq.worker.identity import name_of
from celery_dlq.worker.snapshot import (
    queue_name,
    raw_body,
    sendable_envelope,
    sent_properties,
    snapshot,
)
from celery_dlq.worker.wiring import Wiring

logger = get_logger(__name__)


class ParkedTask(Protocol):
    """What parking asks of a task."""

    app: Any
    name: Any
    _wiring: Wiring


def long_wait(task: ParkedTask, eta: Any, countdown: Any) -> LongWait | None:
    """The wait of a retry, when it is too long for the broker."""
    hold, delay_s = task._wiring.hold, _seconds_until(task.app, eta, countdown)
    if delay_s is None or delay_s <= hold.at_most_s:
        return None
    return LongWait(task, hold, eta or countdown, delay_s)


def _seconds_until(app: Any, eta: Any, countdown: Any) -> float | None:
    # Celery, too, looks at the countdown only without an eta.
    if isinstance(eta, datetime):
        ahead = maybe_make_aware(eta, app.timezone) - datetime.now(timezone.utc)
        return float(ahead.total_seconds())
    return float(countdown) if isinstance(countdown, (int, float)) and not eta else None


class LongWait:
    """A wait in the store. Celery's ``retry()`` is to be called with :attr:`options` and no wait."""

    def __init__(self, task: ParkedTask, hold: Hold, when: Any, delay_s: float) -> None:
        self._task, self._hold, self._when, self._delay_s = task, hold, when, delay_s
        self._catcher = _Catcher(task.app)

    @property
    def options(self) -> dict[str, Any]:
        """What makes Celery hand over the message instead of sending it."""
        return {"producer": self._catcher}

    def park(self, request: Context, again: Retry, cause: BaseException) -> Retry:
        """Let the caught message of ``again`` ride to the worker's parent; returns ``again``, which says
        when."""
        again.when = self._when
        caught = self._catcher.envelope
        if caught is None:
            logger.error("%s sends its retries in a way of its own: not parked", self._task.name)
            return again
        send = partial(_send, again.sig, self._delay_s)
        try:
            here.park(Waiting(self._parking(caught, cause), send))
        except Exception:
            logger.exception("celery_dlq could not park a retry of %s", self._task.name)
            send()
        return again

    def _parking(self, caught: Envelope, cause: BaseException) -> Parking:
        attempts = read_attempts(caught.headers)
        return Parking(
            id=new_parking(self._hold),
            failure=_failure(attempts, cause),
            envelope=caught,
            due_at=datetime.now(timezone.utc) + timedelta(seconds=self._delay_s),
        )


def new_parking(hold: Hold, message: str = "") -> str:
    """A name for a parking, which no other has; it begins with the place, and with the name of the
    ``message`` if that is given."""
    return f"{hold.place}.{message}{uuid.uuid4().hex[: 32 - len(message)]}"


def parked_letter(request: Any, parking: Parking, wiring: Wiring) -> DeadLetter:
    """What the store keeps of a retry of ``request`` (a worker's Request)."""
    return snapshot(request, parking.failure, wiring).with_(
        state=State.PARKED,
        parking=parking.id,
        due_at=parking.due_at,
        envelope=parking.envelope,
    )


def held_letter(request: Any, circuit: Circuit, due_at: datetime, wiring: Wiring) -> DeadLetter:
    """What the store keeps of ``request`` (a worker's Request), which is not run while ``circuit`` is
    open. To be parked is no attempt: the message stays as it came."""
    why = f"the circuit of {circuit.name} is open"
    failure = Failure(
        reason=Reason.PARKED,
        explanation=Explanation(verdict=Verdict.TRANSIENT, rule="breaker.open", evidence=why),
        exception_type=type_name(CircuitOpen),
        message=why,
        traceback="",
        frames=(),
        failed_at=datetime.now(timezone.utc),
        attempts=read_attempts(request.request_dict),
        pid=None,
    )
    parking = Parking(
        id=new_parking(wiring.hold, name_of(request).text),
        failure=failure,
        envelope=sendable_envelope(request.message, request.app, {CIRCUIT_HEADER: circuit.key}),
        due_at=due_at,
    )
    return parked_letter(request, parking, wiring)


def _failure(attempts: tuple[Attempt, ...], cause: BaseException) -> Failure:
    last = attempts[-1]
    return Failure(
        reason=Reason.PARKED,
        explanation=Explanation(
            verdict=last.verdict, rule=last.rule, evidence=last.evidence, path=last.path
        ),
        exception_type=last.exception_type,
        message=safe_message(cause),
        traceback=traceback_text(cause),
        frames=app_frames(cause),
        failed_at=last.failed_at,
        attempts=attempts,
        pid=last.pid,
    )


def _send(signature: Any, delay_s: float) -> None:
    """Send the retry as Celery would have done."""
    signature.options.pop("producer", None)
    signature.apply_async(countdown=delay_s)


class _Catcher(Producer):  # type: ignore[misc]
    """Keeps the task's message, serialised and compressed, instead of publishing it."""

    def __init__(self, app: Any) -> None:
        # Never connected: only its channel would be.
        super().__init__(app.connection_for_write(), auto_declare=False)
        self._app = app
        self.envelope: Envelope | None = None

    def publish(self, body: Any, **options: Any) -> Any:
        # To try again is to look at the connection, whose errors would be waited for.
        return super().publish(body, **{**options, "retry": False})

    def _publish(
        self, body: Any, priority: Any, content_type: Any, content_encoding: Any,
        headers: Mapping[str, Any], properties: Mapping[str, Any], routing_key: Any,
        mandatory: Any, immediate: Any, exchange: Any, *_: Any, **__: Any,
    ) -> None:  # fmt: skip
        if self.envelope is not None or "id" not in headers:
            return  # an event
        self.envelope = Envelope(
            body=raw_body(body, content_encoding),
            content_type=content_type,
            content_encoding=content_encoding,
            headers={**headers, COMPRESSED_HEADER: True} if "compression" in headers else headers,
            properties=sent_properties({**properties, "priority": priority}),
            exchange=str(exchange),
            routing_key=str(routing_key),
            queue=queue_name(str(exchange), str(routing_key), self._app),
        )
