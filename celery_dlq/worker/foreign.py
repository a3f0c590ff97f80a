"""Catches messages that never become a request: their task is unknown, or they are malformed or undecodable.

Celery acknowledges or rejects such a message, or ends with an error. Here the message is first written as a
letter. When the letter is safe, Celery handles the message in its own way.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from celery.exceptions import InvalidTaskError, NotRegistered
from celery.utils.log import get_logger
from kombu.exceptions import ContentDisallowed

from celery_dlq.base.redact import safe_message
from celery_dlq.errors import PoolFailed
from celery_dlq.model.fingerprint import Grounds
from celery_dlq.model.handling import HANDLE_TASK
from celery_dlq.model.headers import RAW_HEADERS_HEADER, has_header
from celery_dlq.model.letter import DeadLetter, Explanation, Failure
from celery_dlq.model.states import Reason, Verdict
from celery_dlq.worker.celery_quirks.unacked_sqs import delete_if_rejected
from celery_dlq.worker.end.handover import RULE, end_unrun
from celery_dlq.worker.end.letters import dead_letter, safely
from celery_dlq.worker.end.malformed import malformation, refusal
from celery_dlq.worker.failure import (
    failure_after,
    new_attempt,
    read_attempts,
    traceback_text,
    type_name,
)
from celery_dlq.worker.message import Contents, envelope, letter_id, read_contents
from celery_dlq.worker.wiring import Captures

logger: logging.Logger = get_logger(__name__)


@dataclass(frozen=True)
class _Defect:
    """Why a message does not become a request."""

    reason: Reason
    #: Takes the place of a classifier's rule.
    rule: str
    error: Exception


#: Gets the message and the error that Celery noticed.
_Describe: TypeAlias = Callable[[Any, Any], _Defect]


class Foreign:
    """Writes the letters of such messages before their consumer handles them."""

    def __init__(self, consumer: Any, capture: Captures) -> None:
        self._consumer, self._capture = consumer, capture

    def join(self) -> None:
        """Replace the consumer's handlers. Called before the consumer starts, because it reads them then."""
        consumer = self._consumer
        self._invalid_task, self._make_handler = (
            consumer.on_invalid_task, consumer.create_task_handler,
        )  # fmt: skip
        for name, describe in _HANDLERS.items():
            setattr(consumer, name, partial(self._handle, getattr(consumer, name), describe))
        consumer.create_task_handler = self._create_task_handler

    def refuse(self, request: Any, error: InvalidTaskError) -> None:
        """Write the letter of ``request``, which the pool cannot take; its task is not a DLQTask."""
        finish = partial(end_unrun, request, error, request.on_failure)
        self._keep(request.message, lambda: _malformed(RULE, error), error, finish)

    def _handle(self, handle: Callable[..., object], describe: _Describe, *args: Any) -> None:
        """Called by the consumer instead of ``handle``: with the message and, if there is one, the error.
        Most handlers get the body before them."""
        message, *errors = args if describe is _undecodable else args[1:]
        exc = errors[0] if errors else None
        self._keep(message, partial(describe, message, exc), exc, partial(handle, *args))

    def _create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], object]:
        handle = self._make_handler(*args, **kwargs)

        def on_task_received(message: Any) -> object:
            try:
                return handle(message)
            except PoolFailed:
                raise
            except Exception as exc:
                # If this were raised, it would end the worker, and then the next one that gets the message.
                # On Redis, a KeyError counts as a lost connection each time.
                if not self._is_its_own_fault(message, exc):
                    raise
                return None

        return on_task_received

    def _is_its_own_fault(self, message: Any, exc: Exception) -> bool:
        """Whether the message itself caused ``exc``. If so, its letter is being written."""
        if message.acknowledged:
            return False
        app = self._consumer.app
        why = safely(message, lambda: malformation(message) or refusal(message, app))
        if why is None:
            return False
        invalid = InvalidTaskError(why)
        invalid.__cause__ = exc
        # As Celery does with messages that it finds invalid itself.
        finish = partial(self._invalid_task, None, message, invalid)
        return self._is_kept(message, lambda: _invalid(message, invalid), exc, finish)

    def _keep(
        self,
        message: Any,
        describe: Callable[[], _Defect],
        exc: Exception | None,
        finish: Callable[[], object],
    ) -> None:
        """Write the letter of ``message``, then call ``finish``; call it at once if no letter can be
        made. The message of a handler needs no letter: the store sends it again."""
        named = has_header(message.headers, "task") and message.headers["task"]
        if named == HANDLE_TASK or not self._is_kept(message, describe, exc, finish):
            finish()

    def _is_kept(
        self,
        message: Any,
        describe: Callable[[], _Defect],
        exc: Exception | None,
        finish: Callable[[], object],
    ) -> bool:
        letter = safely(message, lambda: self._letter(message, describe()))
        if letter is None:
            return False
        self._capture.write(letter, partial(self._finish, message, exc, finish), urgent=True)
        return True

    def _finish(self, message: Any, exc: Exception | None, finish: Callable[[], object]) -> None:
        """Let Celery settle the message. If Celery cannot, the message is rejected, so that it does not come
        back."""
        delete_if_rejected(message)
        try:
            _while_handling(exc, finish)
        except Exception as error:
            lost = isinstance(error, tuple(self._consumer.connection_errors))
            if message.acknowledged or (lost and not isinstance(error, KeyError)):
                raise
            logger.exception("Celery could not finish a message that is a dead letter; rejected")
            message.reject_log_error(logger, self._consumer.connection_errors)

    def _letter(self, message: Any, defect: _Defect) -> DeadLetter:
        contents = read_contents(message)
        return dead_letter(
            letter_id(message, contents.fields.get("id")),
            envelope(message, self._consumer.app),
            contents,
            self._failure(message, contents, defect),
            self._capture.app,
        )

    def _failure(self, message: Any, contents: Contents, defect: _Defect) -> Failure:
        last = new_attempt(
            contents.fields, message.headers, type_name(type(defect.error)), _message_of(defect),
            Explanation(verdict=Verdict.TERMINAL, rule=defect.rule),
            worker=self._consumer.hostname or "", pid=os.getpid(),
        )  # fmt: skip
        attempts = (*read_attempts(message.headers), last)
        text = traceback_text(defect.error)
        return failure_after(
            attempts,
            defect.reason,
            traceback=text,
            grounds=Grounds(evidence=(defect.rule,), needs_message=True),
        )


def _malformed(rule: str, error: Exception) -> _Defect:
    is_refused = isinstance(error, ContentDisallowed)
    return _Defect(Reason.MALFORMED, "message.content_type" if is_refused else rule, error)


def _undecodable(_: Any, error: Exception) -> _Defect:
    return _malformed("message.undecodable", error)


def _invalid(_: Any, error: Exception) -> _Defect:
    return _malformed("message.invalid", error)


def _unknown(message: Any, _: Any) -> _Defect:
    error = NotRegistered(read_contents(message).task)
    return _Defect(Reason.UNKNOWN_TASK, "message.unknown_task", error)


def _without_task(message: Any, _: Any) -> _Defect:
    why = "neither headers nor body name a task"
    if has_header(message.headers, RAW_HEADERS_HEADER):
        why = "the headers are not a table"
    return _malformed("message.no_task", InvalidTaskError(why))


#: The consumer's handlers of messages that never become a request.
_HANDLERS: Mapping[str, _Describe] = {
    "on_decode_error": _undecodable,
    "on_unknown_task": _unknown,
    "on_unknown_message": _without_task,
    "on_invalid_task": _invalid,
}


def _message_of(defect: _Defect) -> str:
    text = safe_message(defect.error)
    if defect.reason is Reason.UNKNOWN_TASK:
        return f"the worker knows no task {text}"
    return text


def _while_handling(exc: Exception | None, finish: Callable[[], object]) -> None:
    """Call ``finish`` as in an ``except`` clause: Celery logs the exception that is being handled."""
    if exc is None:
        finish()
        return
    try:
        raise exc
    except type(exc):
        finish()
