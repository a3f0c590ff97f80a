"""The traces of messages that are sent back. OpenTelemetry gets a span for each of them, if the program has
imported it; Sentry learns when they were sent. An error of theirs never stops a redrive."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from celery_dlq.model.headers import changed
from celery_dlq.model.letter import DeadLetter
from celery_dlq.redrive.broker.message import Sent
from celery_dlq.redrive.broker.publisher import Publisher
from celery_dlq.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

logger: logging.Logger = logging.getLogger(__name__)

#: The seconds since 1970 when a message was sent. Sentry's integration for Celery writes and reads them.
SENTRY_SENT_HEADER = "sentry-task-enqueued-time"

#: The values of ``messaging.system``, by kombu's names. Others are the same.
#: https://opentelemetry.io/docs/specs/semconv/registry/attributes/messaging/
_SYSTEMS = {"amqp": "rabbitmq", "sqs": "aws_sqs"}

#: The value of ``messaging.operation.name``.
_NAME = "redrive"


@dataclass(frozen=True)
class Tracing:
    """Publishes the messages of one operation, each in its trace."""

    app: Any
    settings: Settings
    operation: str
    #: The time of sending.
    now: Callable[[], datetime]

    def publish(self, publisher: Publisher, letters: Sequence[DeadLetter]) -> Callable[[], Sent]:
        """Publish the messages of ``letters``; the returned callable has the result."""
        spans: dict[str, Span] = {}
        if "opentelemetry.trace" in sys.modules:
            letters = [self._traced(letter, spans) for letter in letters]
        answer = publisher.begin(self._timed(letters))
        return (lambda: _ended(spans, answer())) if spans else answer

    def _timed(self, letters: Sequence[DeadLetter]) -> Sequence[DeadLetter]:
        if not any(SENTRY_SENT_HEADER in letter.envelope.headers for letter in letters):
            return letters
        sent = {SENTRY_SENT_HEADER: self.now().timestamp()}
        return [
            _with_headers(letter, frozenset(), sent)
            if SENTRY_SENT_HEADER in letter.envelope.headers
            else letter
            for letter in letters
        ]

    def _traced(self, letter: DeadLetter, spans: dict[str, Span]) -> DeadLetter:
        try:
            # Raises if the environment names a propagator that is not installed.
            from opentelemetry import propagate, trace
            from opentelemetry.context import Context

            span = self._begun(letter)
            if not span.get_span_context().is_valid:
                return letter  # without an SDK
            spans[letter.task_id] = span
            marks: dict[str, str] = {}
            propagate.inject(marks, trace.set_span_in_context(span, Context()))
            # The baggage belongs to the message, and is not that of the span.
            old = propagate.get_global_textmap().fields - {"baggage"}
            return _with_headers(letter, old, marks)
        except Exception:
            logger.debug("OpenTelemetry failed for %s", letter.task_id, exc_info=True)
            return letter

    def _begun(self, letter: DeadLetter) -> Span:
        from opentelemetry import trace
        from opentelemetry.context import Context

        stored = _stored(letter)
        # It stays in the trace of the run that failed; otherwise it begins a trace with a link to that run.
        continues = self.settings.redrive_trace == "continue"
        before = trace.get_current_span(stored).get_span_context()
        attributes = self._attributes(letter)
        return self._tracer.start_span(
            f"{_NAME} {attributes['messaging.destination.name']}",
            stored if continues else Context(),
            trace.SpanKind.PRODUCER,
            attributes,
            [trace.Link(before)] if before.is_valid and not continues else None,
        )

    def _attributes(self, letter: DeadLetter) -> dict[str, str | int]:
        envelope = letter.envelope
        place = envelope.queue or f"{envelope.exchange}:{envelope.routing_key}"
        return {
            "messaging.system": self._system,
            "messaging.operation.name": _NAME,
            "messaging.operation.type": "send",
            "messaging.destination.name": place,
            "messaging.message.id": letter.task_id,
            "messaging.message.body.size": len(envelope.body),
            "celery.task_name": letter.task,
            "celery_dlq.letter": letter.task_id,
            "celery_dlq.group": letter.fingerprint,
            "celery_dlq.redrive": letter.redrive_count + 1,
            "celery_dlq.operation": self.operation,
        }

    @cached_property
    def _tracer(self) -> Tracer:
        from opentelemetry import trace

        return trace.get_tracer("celery_dlq")

    @cached_property
    def _system(self) -> str:
        with self.app.connection_for_write() as connection:
            system = str(connection.transport.driver_type)
        return _SYSTEMS.get(system, system)


def _stored(letter: DeadLetter) -> Context:
    """The context in the headers of a letter; an empty one if they have none that can be read."""
    from opentelemetry import propagate
    from opentelemetry.context import Context

    given = letter.envelope.headers
    found = {name: given.get(name) for name in propagate.get_global_textmap().fields}
    return propagate.extract(
        {name: value for name, value in found.items() if isinstance(value, str)}, Context()
    )


def _with_headers(letter: DeadLetter, old: Set[object], marks: Mapping[str, Any]) -> DeadLetter:
    headers = changed(letter.envelope.headers, old.__contains__, marks)
    return letter.with_(envelope=replace(letter.envelope, headers=headers))


def _ended(spans: Mapping[str, Span], sent: Sent) -> Sent:
    confirmed = set(sent.confirmed)
    for task_id, span in spans.items():
        why = sent.refused.get(task_id) or sent.error or "not confirmed"
        kind = "refused" if task_id in sent.refused else "unconfirmed"
        try:
            if task_id not in confirmed:
                _fail(span, kind, why)
            span.end()
        except Exception:
            logger.debug("OpenTelemetry failed for %s", task_id, exc_info=True)
    return sent


def _fail(span: Span, kind: str, why: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, why))
