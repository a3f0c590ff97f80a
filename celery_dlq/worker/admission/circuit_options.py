"""Reads the options of a task about its circuits: the limits that open them, and the key that divides
them."""

from __future__ import annotations

import hashlib
import inspect
import logging
import string
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from celery.utils.log import get_logger

from celery_dlq.base.redact import hide_known, safe_message, safe_text
from celery_dlq.classify import guarded
from celery_dlq.errors import SettingsError
from celery_dlq.model.assignment import signature_for_messages
from celery_dlq.retry import BreakerLimits
from celery_dlq.worker.options import TaskOptions

logger: logging.Logger = get_logger(__name__)

#: Characters of a key; a longer one is cut and marked with a hash.
KEY_LIMIT = 200

_OPTION = "dlq_breaker_key"

#: The options with the two limits: transient failures in all workers, and failed runs without a success in
#: one of them.
FAILURES, STREAK = "dlq_breaker_failures", "dlq_breaker_streak"

_signature = lru_cache(maxsize=256)(signature_for_messages)


def limits_of(task: Any, option: str) -> BreakerLimits | None:
    """The limits at which ``option`` opens the circuits of ``task``; None if it never does, as for a task
    that is not a DLQTask."""
    failures = getattr(task, option, 0)
    if not failures:
        return None
    return BreakerLimits(failures, task.dlq_breaker_window, task.dlq_breaker_recovery)


def check_key(task: TaskOptions | type[TaskOptions]) -> None:
    """Check the option ``dlq_breaker_key`` of ``task``.

    :raises SettingsError: it is neither a format nor callable.
    """
    given = _given(task)
    if given is None or callable(given):
        return
    try:
        if not isinstance(given, str) or not given:
            raise ValueError("it must be None, a format such as '{customer}', or a callable")  # noqa: TRY301
        fields = [field for _, field, _, _ in string.Formatter().parse(given) if field is not None]
        if not fields:
            raise ValueError("it names no argument, so that all messages would have the same key")  # noqa: TRY301
    except ValueError as error:
        raise SettingsError(f"Task {task.name}: {_OPTION} = {given!r}: {error}.") from None


def key_of(task: TaskOptions, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """The key of a message with these arguments: empty if the task has one circuit for all; None if this
    message belongs to no circuit, because the option says so or fails."""
    given = _given(task)
    if given is None:
        return ""
    if isinstance(given, str):
        key, error = _answer(partial(_formatted, task, given), args, kwargs)
    else:
        guarded.begin()
        find = partial(_answer, given, args, kwargs)
        key, error = guarded.bounded(find, task, _OPTION) or (
            None,
            TimeoutError("it took too long"),
        )
    if error is not None:
        why = hide_known(safe_message(error))
        logger.error("%s of %s failed: %s", _OPTION, task.name, why)
    return key


def _given(task: Any) -> Any:
    # A function in a class would become a method of the task.
    given = inspect.getattr_static(task, _OPTION)
    return given.__func__ if isinstance(given, staticmethod) else given


def _answer(
    find: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[str | None, BaseException | None]:
    try:
        found = find(*args, **kwargs)
        return (None, None) if found is None else (_storable(str(found)), None)
    except Exception as error:  # noqa: BLE001 - the user's, on arguments from anywhere
        return None, error


def _formatted(task: TaskOptions, form: str, /, *args: Any, **kwargs: Any) -> str:
    bound = _signature(task).bind(*args, **kwargs)
    bound.apply_defaults()
    return form.format(*bound.args, **{**bound.arguments, **kwargs})


def _storable(key: str) -> str | None:
    text = safe_text(key).strip()
    if len(text) > KEY_LIMIT:
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        text = f"{text[: KEY_LIMIT - 17]}~{digest}"
    return text or None
