"""Keeps the contents of letters out of a worker's log, if the store has them encrypted. Lines of Celery and
of this package then have the types of exceptions and the places in the code, but no messages and no
arguments. Lines that the user's own code logs stay as they are."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from billiard.exceptions import TimeLimitExceeded, WorkerLostError

from celery_dlq.base.redact import safe_message
from celery_dlq.base.sealing import Keyring
from celery_dlq.classify import is_a
from celery_dlq.errors import BrokerError, SettingsError, StoreError
from celery_dlq.worker.failure import traceback_text, type_name

HIDDEN = "(encrypted; see the letter)"

#: Loggers whose lines may have contents, and the one that dumps messages among other lines.
_LOGGERS = ("celery.app.trace", "celery.worker.request", "celery.worker.strategy", "celery_dlq")
_DUMPING = "celery.worker.consumer.consumer"

#: Errors that say nothing about a message.
_HARMLESS = (StoreError, SettingsError, BrokerError, WorkerLostError, TimeLimitExceeded)

#: Facts in Celery's lines about runs; and its lines that dump a message, whose arguments are not named.
_FACTS = ("exc", "traceback", "args", "kwargs")
_DUMPS = re.compile(r"contents of the message body|decode message body")

#: The ring with which contents are encrypted; None if they are not. And the tasks of the app.
_ring: Keyring | None = None
_tasks: Mapping[str, Any] = {}

Make = Callable[..., logging.LogRecord]


def keep_from_log(ring: Keyring, tasks: Mapping[str, Any]) -> None:
    """Hide contents in what this process logs from now on, and in the processes that it forks.

    :param tasks: by name. Lines about a task that makes no letters stay: they have the only copy.
    """
    global _ring, _tasks
    if _ring is None:
        logging.setLogRecordFactory(_hiding(logging.getLogRecordFactory()))
    _ring, _tasks = ring, tasks


def hidden(text: str) -> str:
    """``text`` as it may be in the log."""
    return text if _ring is None else HIDDEN


def sealed(text: str) -> str:
    """``text`` as it may be in the log, if it is nowhere else; ``Keyring.open(…, "log")`` opens it."""
    return text if _ring is None else _ring.seal(text, "log")


def traceback_in_log(exc: BaseException) -> str:
    """The traceback of ``exc`` as it may be in the log."""
    return traceback_text(exc, safe_message if _ring is None else _message_of)


def _hiding(make: Make) -> Make:
    def record(
        name: str, level: int, path: str, line: int, text: Any, args: Any, exc_info: Any,
        *more: Any, **rest: Any,
    ) -> logging.LogRecord:  # fmt: skip
        is_dump = name == _DUMPING and _DUMPS.search(str(text)) is not None
        if not is_dump and (not name.startswith(_LOGGERS) or _is_about_other(args)):
            return make(name, level, path, line, text, args, exc_info, *more, **rest)
        made = make(name, level, path, line, text, args, None, *more, **rest)
        if not name.startswith("celery_dlq"):
            made.args = _without_contents(made.args, is_dump=is_dump)
        if exc_info and exc_info[1] is not None:
            made.exc_text = traceback_text(exc_info[1], _message_of)
            if isinstance(made.args, dict):
                made.args["exc"] = _shown(exc_info[1], is_dump=False)
        return made

    return record


def _is_about_other(args: Any) -> bool:
    """Whether the line is about a task that makes no letters."""
    facts = args[0] if args and isinstance(args[0], dict) else {}
    task = _tasks.get(str(facts.get("name")))
    return task is not None and not getattr(task, "_makes_letters", False)


def _message_of(exc: BaseException) -> str:
    return safe_message(exc) if is_a(exc, _HARMLESS) else HIDDEN


def _without_contents(args: Any, *, is_dump: bool) -> Any:
    if isinstance(args, dict):
        # In place, because Celery gives the table to custom handlers, too.
        args.update({fact: HIDDEN for fact in _FACTS if fact in args})
        return args
    return tuple(_shown(arg, is_dump=is_dump) for arg in args or ())


def _shown(arg: Any, *, is_dump: bool) -> Any:
    if is_a(arg, BaseException):
        # It is the name of a task that is not registered.
        is_name = is_dump and is_a(arg, KeyError)
        return arg if is_name or is_a(arg, _HARMLESS) else f"{type_name(type(arg))} {HIDDEN}"
    return HIDDEN if is_dump or isinstance(arg, dict) else arg
