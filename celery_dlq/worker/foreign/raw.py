"""The letter of a message without a request: everything is read from the message, as far as it is readable,
and nothing is unpickled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kombu.serialization import loads

from celery_dlq.model.headers import attempt_number
from celery_dlq.model.letter import NO_TASK, DeadLetter, Envelope, Failure
from celery_dlq.model.route import routed
from celery_dlq.redact import safe_text
from celery_dlq.worker.wiring import Wiring
from celery_dlq.worker.writing.snapshot import canvas_of, grouped_by, text_or_none

#: The most bytes of a body that is decoded for display; the event loop waits while it is decoded.
DECODE_LIMIT = 8 * 1024 * 1024

#: Other content types may run code when they are read.
_SAFE_CONTENT = "application/json"


@dataclass(frozen=True)
class Contents:
    """The parts of a message that can be read without running code in it."""

    #: Names the task: the headers; in the protocol of Celery 3, the body.
    fields: Mapping[str, Any]
    args: Any = None
    kwargs: Any = None
    embed: Any = None

    @property
    def task(self) -> str:
        """The task's name, or a placeholder."""
        name = self.fields.get("task")
        return safe_text(name) if isinstance(name, str) and name else NO_TASK

    @property
    def attempt_number(self) -> int:
        """1-based; Celery's ``retries`` + 1."""
        return attempt_number(self.fields)


def read_contents(message: Any) -> Contents:
    """The contents of a kombu message, or of an envelope."""
    headers, payload = message.headers, _payload(message)
    if isinstance(payload, Mapping) and "task" in {**headers, **payload}:
        fields = headers if "task" in headers else payload
        return Contents(fields, payload.get("args"), payload.get("kwargs"), payload)
    if isinstance(payload, (list, tuple)) and len(payload) == 3:
        return Contents(headers, *payload)
    return Contents(headers)


def raw_letter(
    task_id: str, envelope: Envelope, contents: Contents, failure: Failure, wiring: Wiring
) -> DeadLetter:
    """The letter of a message that died of ``failure``."""
    fields, display = contents.fields, wiring.redactor.display
    letter = DeadLetter(
        task_id=task_id,
        task=contents.task,
        reason=failure.reason,
        explanation=failure.explanation,
        exception_type=failure.exception_type,
        message=failure.message,
        traceback=failure.traceback,
        fingerprint=wiring.grouping.fingerprint(
            grouped_by(contents.task, failure, wiring.redactor)
        ),
        args=display(contents.args),
        kwargs=display(contents.kwargs),
        attempts=failure.attempts,
        first_failed_at=failure.attempts[0].failed_at,
        last_failed_at=failure.failed_at,
        worker=failure.attempts[-1].worker,
        pid=failure.pid,
        release=wiring.settings.release,
        root_id=text_or_none(fields.get("root_id")),
        parent_id=text_or_none(fields.get("parent_id")),
        group_id=text_or_none(fields.get("group") or fields.get("taskset")),
        correlation_id=text_or_none(envelope.properties.get("correlation_id")),
        canvas=canvas_of(contents.embed, fields.get("group")),
        tags=(),
        envelope=envelope,
    )
    return routed(letter, wiring.settings.routes)


def _payload(message: Any) -> Any:
    """The decoded body; None if decoding might fail, run code, or take long."""
    if message.content_type != _SAFE_CONTENT or len(message.body or b"") > DECODE_LIMIT:
        return None
    encoding = message.content_encoding
    try:
        return loads(message.body, _SAFE_CONTENT, encoding, accept={_SAFE_CONTENT})
    except Exception:  # noqa: BLE001 - decoders raise anything
        return None
