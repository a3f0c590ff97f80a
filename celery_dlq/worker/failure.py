"""The parts of an exception that a letter keeps (type, message, traceback), earlier attempts, and exceptions
that would end more than the task that raised them."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from billiard.einfo import ExceptionInfo, ExceptionWithTraceback
from celery.exceptions import Reject, WorkerShutdown, WorkerTerminate

from celery_dlq.base.redact import TRACEBACK_LIMIT, clip, clip_middle, safe_message, safe_text
from celery_dlq.classify import is_a
from celery_dlq.errors import TaskAborted
from celery_dlq.model.fingerprint import Grounds
from celery_dlq.model.headers import attempt_number, attempts_of, redrive_of
from celery_dlq.model.letter import (
    Attempt,
    Explanation,
    Failure,
    attempt_from_outside,
    attempt_to_dict,
)
from celery_dlq.model.states import Reason
from celery_dlq.worker.celery_quirks.pools import is_of_green_pool, is_terminated

#: Attempts kept in the retry header: the first one, because it opens the retry window, and the latest ones.
ATTEMPT_LIMIT = 20

#: The most exceptions of a cause chain that a traceback shows, and the most frames of each.
_CHAIN_LIMIT, _FRAME_LIMIT = 8, 40

#: The most characters of a message inside a traceback; the letter keeps the whole message separately.
_INNER_MESSAGE_LIMIT = 2_000


@contextmanager
def logged(logger: logging.Logger, text: str, *about: object) -> Iterator[None]:
    """Log an error that must not keep Celery, or the rest of this package, from the next step."""
    try:
        yield
    except Exception:
        logger.exception(text, *about)


def type_name(exc_type: type) -> str:
    """The dotted name of an exception type; builtins without their module."""
    module = getattr(exc_type, "__module__", None)
    name = str(getattr(exc_type, "__qualname__", exc_type.__name__))
    return name if module in (None, "builtins") else f"{module}.{name}"


def unwrap(einfo: ExceptionInfo) -> BaseException:
    """The exception of ``einfo``. Pools without child processes wrap it."""
    exc: BaseException = einfo.exception
    return exc.exc if is_a(exc, ExceptionWithTraceback) else exc


def traceback_text(
    exc: BaseException, message_of: Callable[[BaseException], str] = safe_message
) -> str:
    """The traceback with its causes, bounded in size, even if the exceptions raise when they are read."""
    parts = []
    for link, node in _chain(exc):
        stack = traceback.format_list(traceback.extract_tb(node.__traceback__, limit=-_FRAME_LIMIT))
        message = clip(message_of(node), _INNER_MESSAGE_LIMIT)
        heading = ["Traceback (most recent call last):\n"] if stack else []
        line = f"{type_name(type(node))}: {message}" if message else type_name(type(node))
        parts.append("".join([*heading, *stack, line, "\n", link]))
    return clip_middle("".join(reversed(parts)), TRACEBACK_LIMIT)


def bounded_traceback(text: str) -> str:
    """A traceback that Celery formatted, bounded in size and without characters that a database refuses."""
    return clip_middle(safe_text(text), TRACEBACK_LIMIT)


def shed_frames(einfo: ExceptionInfo) -> None:
    """Remove billiard's copy of the frames from ``einfo``; the worker's parent needs it only for a Reject.

    Otherwise each failure would pickle and send dozens of objects that the parent keeps until its letter is
    safe, and each garbage collection would walk through them. The text of the traceback stays.
    """
    if not is_a(unwrap(einfo), Reject):
        einfo.tb = None


def _chain(exc: BaseException) -> Iterator[tuple[str, BaseException]]:
    """The exception and its causes, each with the sentence that leads to the next one."""
    link, node, seen = "", exc, set[int]()
    while id(node) not in seen and len(seen) < _CHAIN_LIMIT:
        seen.add(id(node))
        yield link, node
        if node.__cause__ is not None:
            link = "\nThe above exception was the direct cause of the following exception:\n\n"
            node = node.__cause__
        elif node.__context__ is not None and not node.__suppress_context__:
            link = "\nDuring handling of the above exception, another exception occurred:\n\n"
            node = node.__context__


def new_attempt(
    fields: Mapping[str, Any], headers: Any, exception_type: str, message: str, explanation: Explanation,
    *, worker: str, pid: int | None, delay_s: float | None = None,
) -> Attempt:  # fmt: skip
    """The run that has ended now.

    :param fields: have the number of retries.
    :param headers: the message's own.
    """
    return Attempt(
        number=attempt_number(fields),
        redrive=redrive_of(headers),
        failed_at=datetime.now(timezone.utc),
        exception_type=exception_type,
        message=message,
        delay_s=delay_s,
        worker=worker,
        pid=pid,
        **vars(explanation),
    )


def failure_after(
    attempts: tuple[Attempt, ...], reason: Reason,
    *, traceback: str, grounds: Grounds, log: str = "",
) -> Failure:  # fmt: skip
    """The failure in which the last of ``attempts`` ended."""
    last = attempts[-1]
    return Failure(
        reason=reason,
        explanation=Explanation(
            verdict=last.verdict, rule=last.rule, evidence=last.evidence, path=last.path
        ),
        exception_type=last.exception_type,
        message=last.message,
        traceback=traceback,
        grounds=grounds,
        failed_at=last.failed_at,
        attempts=attempts,
        pid=last.pid,
        log=log,
    )


def read_attempts(headers: Mapping[str, Any] | None) -> tuple[Attempt, ...]:
    """The earlier attempts that a retried message carries. Attempts that cannot be read are left out, because
    a broken history must not cost the letter."""
    return _bounded(attempts_of(headers, attempt_from_outside))


def write_attempts(attempts: Sequence[Attempt]) -> str:
    """The header value that carries ``attempts`` to the next run."""
    kept = _bounded(tuple(attempts))
    return json.dumps([attempt_to_dict(attempt) for attempt in kept], separators=(",", ":"))


def _bounded(attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
    if len(attempts) <= ATTEMPT_LIMIT:
        return attempts
    return (attempts[0], *attempts[1 - ATTEMPT_LIMIT :])


def aborted(exc: BaseException) -> TaskAborted:
    """An ordinary exception in place of ``exc``, which would end the worker."""
    return TaskAborted(f"{type_name(type(exc))}: {safe_message(exc)}")


def is_shutdown(exc: BaseException) -> bool:
    """Whether ``exc`` does not come from the task, but from outside, because its process, its greenlet or (in
    the solo pool) its worker is being ended."""
    return is_terminated() or is_a(exc, (WorkerShutdown, WorkerTerminate)) or is_of_green_pool(exc)
