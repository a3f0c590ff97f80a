"""Messages that never become a request of a task: unknown, undecodable, or no task at all.

Celery acknowledges or rejects them on the way, or dies of them. Here each is recorded first; Celery's
own handling goes on when its letter is safe.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import Any

from celery.exceptions import InvalidTaskError, NotRegistered
from celery.utils.log import get_logger
from kombu.exceptions import ContentDisallowed

from celery_dlq.fingerprint import fingerprint
from celery_dlq.headers import RAW_HEADERS_HEADER, redrive_of
from celery_dlq.letter import NO_TASK, Attempt, DeadLetter, Explanation
from celery_dlq.redact import safe_message, safe_text
from celery_dlq.states import Reason, Verdict
from celery_dlq.worker.failure import read_attempts, traceback_text, type_name
from celery_dlq.worker.identity import letter_id
from celery_dlq.worker.malformed import malformation
from celery_dlq.worker.snapshot import canvas_of, envelope, text_or_none
from celery_dlq.worker.task import Wiring

logger = get_logger(__name__)

#: Bytes of a body beyond which it is not decoded to be shown: the event loop waits meanwhile.
DECODE_LIMIT = 8 * 1024 * 1024

#: Never one that may run code when it is read.
_SAFE_CONTENT = "application/json"


@dataclass(frozen=True)
class _Defect:
    """Why a message is no request."""

    reason: Reason
    #: What stands in the place of a classifier's rule.
    rule: str
    error: Exception


@dataclass(frozen=True)
class _Contents:
    """What can be read of a message without running anything of it."""

    #: What says who the task is: the headers; in the protocol of Celery 3, the body.
    fields: Mapping[str, Any]
    args: Any = None
    kwargs: Any = None
    embed: Any = None


class Foreign:
    """Stands between a consumer and its own handling of such messages."""

    def __init__(self, consumer: Any, wiring: Wiring) -> None:
        self._consumer, self._wiring = consumer, wiring

    def join(self) -> None:
        """Take the place of the consumer's handlers; before it starts, which is when it looks at them."""
        consumer = self._consumer
        self._decode_error = consumer.on_decode_error
        self._unknown_task = consumer.on_unknown_task
        self._unknown_message = consumer.on_unknown_message
        self._invalid_task = consumer.on_invalid_task
        self._make_handler = consumer.create_task_handler
        consumer.on_decode_error = self._on_decode_error
        consumer.on_unknown_task = self._on_unknown_task
        consumer.on_unknown_message = self._on_unknown_message
        consumer.on_invalid_task = self._on_invalid_task
        consumer.create_task_handler = self._create_task_handler

    def _on_decode_error(self, message: Any, exc: Exception) -> None:
        defect = _Defect(Reason.MALFORMED, _rule_of(exc, "message.undecodable"), exc)
        finish = partial(self._decode_error, message, exc)
        if not self._is_kept(message, defect, exc, finish):
            finish()

    def _on_unknown_task(self, body: Any, message: Any, exc: Exception) -> None:
        unknown = NotRegistered(_task_name(_contents(message).fields))
        defect = _Defect(Reason.UNKNOWN_TASK, "message.unknown_task", unknown)
        finish = partial(self._unknown_task, body, message, exc)
        if not self._is_kept(message, defect, exc, finish):
            finish()

    def _on_unknown_message(self, body: Any, message: Any) -> None:
        wrong = RAW_HEADERS_HEADER in message.headers
        why = "the headers are no table" if wrong else "neither headers nor body name a task"
        error = InvalidTaskError(why)
        defect = _Defect(Reason.MALFORMED, "message.no_task", error)
        finish = partial(self._unknown_message, body, message)
        if not self._is_kept(message, defect, error, finish):
            finish()

    def _on_invalid_task(self, body: Any, message: Any, exc: Exception) -> None:
        defect = _Defect(Reason.MALFORMED, _rule_of(exc, "message.invalid"), exc)
        finish = partial(self._invalid_task, body, message, exc)
        if not self._is_kept(message, defect, exc, finish):
            finish()

    def _create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], object]:
        handle = self._make_handler(*args, **kwargs)

        def on_task_received(message: Any) -> object:
            try:
                return handle(message)
            except Exception as exc:
                # Out of here it would end the worker, and the next one to get the message; on Redis,
                # a KeyError counts as a lost connection, again and again.
                if not self._is_its_own_fault(message, exc):
                    raise
                return None

        return on_task_received

    def _is_its_own_fault(self, message: Any, exc: Exception) -> bool:
        """Whether ``exc`` came of what the message is; then its letter is on the way."""
        if message.acknowledged:
            return False
        why = malformation(message)
        if why is None:
            return False
        invalid = InvalidTaskError(why)
        invalid.__cause__ = exc
        defect = _Defect(Reason.MALFORMED, "message.invalid", invalid)
        # As Celery does with the messages that it finds invalid by itself.
        finish = partial(self._invalid_task, None, message, invalid)
        return self._is_kept(message, defect, exc, finish)

    def _is_kept(
        self, message: Any, defect: _Defect, exc: Exception, finish: Callable[[], object]
    ) -> bool:
        """Record the letter of ``message``, then ``finish``. False when no letter could be made."""
        letter = self._letter_or_log(message, defect)
        if letter is None:
            return False
        self._wiring.record(letter, partial(self._finish, message, exc, finish))
        return True

    def _finish(self, message: Any, exc: Exception, finish: Callable[[], object]) -> None:
        """Let Celery go on; a message that it cannot get rid of must not come back."""
        try:
            _while_handling(exc, finish)
        except Exception as error:
            if message.acknowledged or self._lost_connection(error):
                raise
            logger.exception("Celery could not finish a message that is a dead letter; rejected")
            message.reject_log_error(logger, self._consumer.connection_errors)

    def _lost_connection(self, exc: Exception) -> bool:
        lost = isinstance(exc, tuple(self._consumer.connection_errors))
        return lost and not isinstance(exc, KeyError)

    def _letter_or_log(self, message: Any, defect: _Defect) -> DeadLetter | None:
        try:
            return self._letter(message, defect)
        except Exception:
            # Celery's own handling must go on whatever happens here.
            logger.critical(
                "celery_dlq could not make a dead letter of a foreign message; body=%r headers=%r",
                getattr(message, "body", message), getattr(message, "headers", None), exc_info=True,
            )  # fmt: skip
            return None

    def _letter(self, message: Any, defect: _Defect) -> DeadLetter:
        contents, error = _contents(message), defect.error
        fields, display = contents.fields, self._wiring.redactor.display
        task, kind, text = _task_name(fields), type_name(type(error)), _message_of(defect)
        attempts = self._attempts(fields, message, kind, text, defect)
        return DeadLetter(
            task_id=letter_id(message, fields.get("id")),
            task=task,
            reason=defect.reason,
            explanation=Explanation(verdict=Verdict.TERMINAL, rule=defect.rule),
            exception_type=kind,
            message=text,
            traceback=traceback_text(error),
            fingerprint=fingerprint(task, kind, (defect.rule,), text),
            args=display(contents.args),
            kwargs=display(contents.kwargs),
            attempts=attempts,
            first_failed_at=attempts[0].failed_at,
            last_failed_at=attempts[-1].failed_at,
            worker=self._consumer.hostname or "",
            pid=os.getpid(),
            release=self._wiring.settings.release,
            root_id=text_or_none(fields.get("root_id")),
            parent_id=text_or_none(fields.get("parent_id")),
            group_id=text_or_none(fields.get("group") or fields.get("taskset")),
            correlation_id=text_or_none((message.properties or {}).get("correlation_id")),
            canvas=canvas_of(contents.embed, fields.get("group")),
            tags=(),
            envelope=envelope(message, self._consumer.app),
        )

    def _attempts(
        self, fields: Mapping[str, Any], message: Any, kind: str, text: str, defect: _Defect
    ) -> tuple[Attempt, ...]:
        retries = fields.get("retries")
        last = Attempt(
            number=(retries if type(retries) is int and retries > 0 else 0) + 1,
            redrive=redrive_of(message.headers),
            failed_at=datetime.now(timezone.utc),
            exception_type=kind,
            message=text,
            verdict=Verdict.TERMINAL,
            rule=defect.rule,
            worker=self._consumer.hostname or "",
            pid=os.getpid(),
        )
        return (*read_attempts(message.headers), last)


def _contents(message: Any) -> _Contents:
    headers, payload = message.headers, _payload(message)
    if isinstance(payload, Mapping) and "task" in {**headers, **payload}:
        fields = headers if "task" in headers else payload
        return _Contents(fields, payload.get("args"), payload.get("kwargs"), payload)
    if isinstance(payload, (list, tuple)) and len(payload) == 3:
        return _Contents(headers, *payload)
    return _Contents(headers)


def _payload(message: Any) -> Any:
    """The decoded body; None where decoding it might fail, run code, or take long."""
    if message.errors or message.content_type != _SAFE_CONTENT:
        return None
    if len(message.body or b"") > DECODE_LIMIT:
        return None
    try:
        return message.payload
    except Exception:  # noqa: BLE001 - decoders raise anything
        return None


def _task_name(fields: Mapping[str, Any]) -> str:
    name = fields.get("task")
    return safe_text(name) if isinstance(name, str) and name else NO_TASK


def _message_of(defect: _Defect) -> str:
    text = safe_message(defect.error)
    if defect.reason is Reason.UNKNOWN_TASK:
        return f"the worker knows no task {text}"
    return text


def _rule_of(exc: Exception, otherwise: str) -> str:
    return "message.content_type" if isinstance(exc, ContentDisallowed) else otherwise


def _while_handling(exc: Exception, finish: Callable[[], object]) -> None:
    """Call ``finish`` as from an ``except`` clause: Celery logs the exception that is being handled."""
    try:
        raise exc
    except type(exc):
        finish()
