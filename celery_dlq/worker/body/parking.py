"""Parks a retry whose wait is too long for the broker: its message is caught before it is sent, and the
worker's parent stores it.

The parent acknowledges the message that was retried only when the retry is durable. If a body catches the
exception of ``retry()`` and ends in another way, the retry cannot travel to the parent with the end of the
run. Then it is sent to the broker after all, as Celery would have done.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from celery.exceptions import Retry
from celery.utils.log import get_logger
from celery.utils.time import maybe_make_aware
from kombu import Producer

from celery_dlq.base.codec import raw_body
from celery_dlq.base.redact import safe_message
from celery_dlq.model.headers import COMPRESSED_HEADER
from celery_dlq.model.letter import Envelope, Parking
from celery_dlq.model.states import Reason
from celery_dlq.worker.body.ending import Waiting, current_run
from celery_dlq.worker.broker_limits import Hold
from celery_dlq.worker.failure import failure_after, read_attempts, traceback_text
from celery_dlq.worker.grouping import grounds_of
from celery_dlq.worker.message import queue_name, sent_properties
from celery_dlq.worker.options import TaskOptions

logger: logging.Logger = get_logger(__name__)


def new_parking(place: str, message: str = "") -> str:
    """A unique name for a parking. It begins with the ``place`` (the broker), then the name of the
    ``message``, if there is one."""
    return f"{place}.{message}{uuid.uuid4().hex[: 32 - len(message)]}"


def long_wait(task: TaskOptions, eta: Any, countdown: Any) -> LongWait | None:
    """The wait of a retry, if it is too long for the broker."""
    hold = task._wiring.hold
    # Celery, too, looks at the countdown only without an eta.
    if isinstance(eta, datetime):
        ahead = maybe_make_aware(eta, task.app.timezone) - datetime.now(timezone.utc)
        delay_s = float(ahead.total_seconds())
    else:
        delay_s = float(countdown) if isinstance(countdown, (int, float)) and not eta else 0.0
    return LongWait(task, hold, eta or countdown, delay_s) if delay_s > hold.at_most_s else None


class LongWait:
    """A wait in the store. Celery's ``retry()`` is to be called with :attr:`options` and no wait."""

    def __init__(self, task: TaskOptions, hold: Hold, when: Any, delay_s: float) -> None:
        self._task, self._hold, self._when, self._delay_s = task, hold, when, delay_s
        self._catcher = Catcher(task.app)
        #: The options of ``retry()`` with which Celery hands over the message instead of sending it.
        self.options: dict[str, Any] = {"producer": self._catcher}

    def park(self, again: Retry, cause: BaseException) -> None:
        """Hand the caught message of ``again`` to the worker's parent with the end of this run."""
        again.when = self._when
        caught = self._catcher.envelope
        if caught is None:
            logger.error("%s sends its retries in its own way: not parked", self._task.name)
            return

        def send() -> None:
            """Send the retry as Celery would have done."""
            again.sig.options.pop("producer", None)
            again.sig.apply_async(countdown=self._delay_s)

        try:
            current_run().waiting = Waiting(self._parking(caught, cause), send)
        except Exception:
            logger.exception("celery_dlq could not park a retry of %s", self._task.name)
            send()

    def _parking(self, caught: Envelope, cause: BaseException) -> Parking:
        attempts, text = read_attempts(caught.headers), traceback_text(cause)
        grounds = grounds_of(cause)
        failure = failure_after(attempts, Reason.PARKED, traceback=text, grounds=grounds)
        return Parking(
            id=new_parking(self._hold.place),
            failure=replace(failure, message=safe_message(cause)),
            envelope=caught,
            due_at=datetime.now(timezone.utc) + timedelta(seconds=self._delay_s),
        )


class Catcher(Producer):  # type: ignore[misc]
    """Keeps the task's message, serialised and compressed, instead of publishing it."""

    def __init__(self, app: Any) -> None:
        # This connection is never opened, because only its channel would open it.
        super().__init__(app.connection_for_write(), auto_declare=False)
        self._app = app
        #: The message, once it is published.
        self.envelope: Envelope | None = None

    def publish(self, body: Any, **options: Any) -> Any:
        """kombu's ``publish()``, without a connection."""
        # With retry=True kombu would connect, and wait for the broker if that fails.
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
